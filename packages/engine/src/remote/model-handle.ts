import { OsmosisError, TinkerModelCreated } from "@osmosis/protocol";
import { z } from "zod";
import type { TrainMethod } from "../service.ts";
import { lost } from "./model-lost.ts";
import type { RemoteSession } from "./service.ts";
import type { Pending, WireBody } from "./wire-client.ts";
import { readAnswer } from "./wire-data.ts";

/** What servers scale adapters with when the wire does not say. */
const WIRE_ALPHA = 32;

/** A model at a trainer: `submit` numbers its requests and sends them one after the other. */
export type ModelHandle = {
  readonly id: string;
  /** Whether it has had a request: weights may be loaded by the first one only. */
  isFresh(): boolean;
  /** `body` is made anew where a request is sent under another name. */
  submit(path: string, body: (seqId: number) => WireBody): Promise<Pending>;
};

const ModelInfo = z.object({ lora_alpha: z.number().nullish() });

/**
 * Makes a model at a trainer.
 *
 * @throws OsmosisError `VALIDATION` for a scale of the adapter that the trainer cannot be told.
 */
export async function openHandle(
  session: RemoteSession,
  baseModel: string,
  { method, seed }: { readonly method: TrainMethod; readonly seed: number },
): Promise<ModelHandle> {
  const { wire, signal } = session;
  const lora = method.type === "lora" && {
    lora_config: {
      rank: method.rank,
      ...(method.alpha !== WIRE_ALPHA && { alpha: method.alpha }),
      seed,
      train_unembed: true,
      train_mlp: method.layers !== "attention",
      train_attn: method.layers !== "feed_forward",
    },
  };
  const json = {
    session_id: session.id,
    model_seq_id: session.nextModel(),
    base_model: baseModel,
    ...lora,
  };
  const created = await (await wire.start("/create_model", { json }, signal).catch(explain)).result();
  const { model_id: id } = readAnswer(created, TinkerModelCreated);
  if (method.type === "lora" && method.alpha !== WIRE_ALPHA) await requireAlpha(session, id, method.alpha);
  let lastSeqId = 0;
  let last: Promise<unknown> = Promise.resolve();
  let broken: unknown;
  return {
    id,
    isFresh: () => lastSeqId === 0,
    submit(path, body) {
      const seqId = ++lastSeqId;
      const accepted = last.then(async () => {
        if (broken !== undefined) {
          throw new OsmosisError(
            "PLATFORM_ERROR",
            `The model ${id} cannot go on after a request that was not accepted.`,
            { cause: broken },
          );
        }
        const start = () => wire.start(path, body(seqId), signal);
        const pending = await start()
          .catch((error: unknown) => {
            // A server that does not number saving refuses a repeated one whose answer was lost; another name will do.
            if (isConflict(error) && path.startsWith("/save_")) return start();
            throw error;
          })
          .catch(lost);
        return { result: () => pending.result().catch(lost) };
      });
      // A number that the trainer never got would be waited for by all later ones.
      last = accepted.catch((error: unknown) => {
        broken ??= error;
      });
      return accepted;
    },
  };
}

/** A trainer that knows adapters only misses the settings of one. */
function explain(error: unknown): never {
  if (!(error instanceof OsmosisError) || error.code !== "VALIDATION" || !/lora/i.test(error.message))
    throw error;
  throw new OsmosisError("VALIDATION", `The trainer cannot make such a model. ${error.message}`, {
    hint: 'A trainer may know adapters only: [advanced].method = "lora".',
    cause: error,
  });
}

function isConflict(error: unknown): boolean {
  return error instanceof OsmosisError && error.code === "CONFLICT";
}

/** The scale is no part of the wire; a server that keeps it tells it. */
async function requireAlpha(session: RemoteSession, model_id: string, alpha: number): Promise<void> {
  const { wire, signal } = session;
  const info = await wire.post("/get_info", { model_id }, ModelInfo, signal).catch(() => undefined);
  if (info?.lora_alpha === alpha) return;
  throw new OsmosisError("VALIDATION", `The trainer scales adapters by ${WIRE_ALPHA}, not by ${alpha}.`, {
    hint: `Set [advanced].lora_alpha = ${WIRE_ALPHA}, or train on the embedded trainer.`,
  });
}

/** Best effort: the trainer closes it with the session anyway. */
export async function unload(session: RemoteSession, { id }: Pick<ModelHandle, "id">): Promise<void> {
  if (session.signal.aborted) return;
  const started = session.wire.start("/unload_model", { json: { model_id: id } }, session.signal);
  await started.then((pending) => pending.result()).catch(() => {});
}
