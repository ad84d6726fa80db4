import { randomUUID } from "node:crypto";
import { rm } from "node:fs/promises";
import type { ModelSource, TrainMethod, TrainableModel } from "@osmosis/engine";
import { OsmosisError } from "@osmosis/protocol";
import type { BaseFolder } from "./base-folders.ts";
import type { EngineHost } from "./engine-host.ts";
import { NoPlace } from "./places.ts";
import { createSequence, type Sequence } from "./sequence.ts";

/** A session without a word for this long has lost its client. Clients send one every ten seconds. */
const SILENCE_MS = 120_000;

const MAX_SESSIONS_PER_USER = 64;
const MAX_MODELS_PER_SESSION = 4;
/** Each holds its weights, gradients and moments in memory. */
const MAX_MODELS = 8;
/** Weights that a model handed to sampling sessions without a name; older ones are forgotten. */
const MAX_SNAPSHOTS = 8;

/** A model under training. Its requests run one after the other, by their numbers. */
export type LiveModel = {
  readonly id: string;
  readonly session: Session;
  readonly base: BaseFolder;
  readonly method: TrainMethod;
  readonly seed: number;
  readonly sequence: Sequence;
  opened: Promise<TrainableModel>;
  /** Sampling sessions of its snapshots, oldest first. */
  readonly snapshots: string[];
};

export type Sampling = {
  readonly id: string;
  readonly session: Session;
  readonly base: BaseFolder;
  readonly source: ModelSource;
  readonly modelPath?: string;
  /** Belongs to this sampling session alone, and goes with it. */
  readonly folder?: string;
};

export type Session = {
  readonly id: string;
  readonly owner: string;
  readonly models: Map<string, LiveModel>;
  readonly samplings: Map<string, Sampling>;
  readonly closing: AbortController;
  lastSeenAt: number;
};

/** Clients, and the models that they hold open. All of it ends with the server. */
export function createSessions({ host, now }: { readonly host: EngineHost; readonly now: () => Date }) {
  const sessions = new Map<string, Session>();

  function session(owner: string, id: string): Session {
    const found = sessions.get(id);
    if (found === undefined || found.owner !== owner) {
      throw new OsmosisError("NOT_FOUND", `There is no session ${id}.`, {
        hint: "Sessions end when their client is silent for two minutes, and with the server. Create a new one.",
      });
    }
    found.lastSeenAt = now().getTime();
    return found;
  }

  async function closeModel(model: LiveModel, reason: OsmosisError): Promise<void> {
    model.session.models.delete(model.id);
    await model.sequence.close(reason);
    const opened = await model.opened.catch(() => undefined);
    await opened?.[Symbol.asyncDispose]();
  }

  async function close(closing: Session): Promise<void> {
    const reason = new OsmosisError("NOT_FOUND", `The session ${closing.id} has ended.`);
    sessions.delete(closing.id);
    closing.closing.abort(reason);
    await Promise.all([...closing.models.values()].map((model) => closeModel(model, reason)));
    await Promise.all([...closing.samplings.values()].map(forget));
    if (sessions.size === 0 && !host.isSampling()) await host.close();
  }

  return {
    create(owner: string): Session {
      const own = [...sessions.values()].filter((one) => one.owner === owner);
      if (own.length >= MAX_SESSIONS_PER_USER) {
        throw new OsmosisError("RATE_LIMITED", `You have ${own.length} sessions open.`);
      }
      const created: Session = {
        id: randomUUID(),
        owner,
        models: new Map(),
        samplings: new Map(),
        closing: new AbortController(),
        lastSeenAt: now().getTime(),
      };
      sessions.set(created.id, created);
      return created;
    },

    /** Newest first. */
    list: (owner: string): Session[] =>
      [...sessions.values()].filter((one) => one.owner === owner).toReversed(),

    /** @throws OsmosisError `NOT_FOUND`. Asking counts as a sign of life. */
    get: session,

    /**
     * Starts to open a model.
     *
     * @throws OsmosisError `VALIDATION` when the session has too many; `NOT_FOUND` when it has ended meanwhile.
     * @throws NoPlace when the server has too many.
     */
    addModel(
      owner: Session,
      parts: Pick<LiveModel, "id" | "base" | "method" | "seed">,
      open: () => Promise<TrainableModel>,
    ): LiveModel {
      owner.closing.signal.throwIfAborted();
      if (owner.models.size >= MAX_MODELS_PER_SESSION) {
        throw new OsmosisError("VALIDATION", `A session trains ${MAX_MODELS_PER_SESSION} models at most.`, {
          hint: "Unload one, or open another session.",
        });
      }
      const holders = new Map<string, number>();
      for (const { owner: user, models } of sessions.values()) {
        if (models.size > 0) holders.set(user, (holders.get(user) ?? 0) + models.size);
      }
      if (holders.values().reduce((sum, count) => sum + count, 0) >= MAX_MODELS) throw new NoPlace(holders);
      const model: LiveModel = {
        ...parts,
        session: owner,
        sequence: createSequence({ now }),
        opened: open(),
        snapshots: [],
      };
      owner.models.set(model.id, model);
      model.opened.catch(() => owner.models.delete(model.id));
      return model;
    },

    /** @throws OsmosisError `NOT_FOUND`. */
    model(owner: string, id: string): LiveModel {
      const found = session(owner, id.split(":")[0] ?? "").models.get(id);
      if (found === undefined) throw new OsmosisError("NOT_FOUND", `There is no model ${id}.`);
      return found;
    },

    closeModel: (model: LiveModel) =>
      closeModel(model, new OsmosisError("NOT_FOUND", `The model ${model.id} was unloaded.`)),

    addSampling(added: Sampling): void {
      added.session.samplings.set(added.id, added);
    },

    /** Adds a snapshot of a model, and forgets its oldest ones, and the oldest of models that were unloaded. */
    async addSnapshot(model: LiveModel, added: Sampling): Promise<void> {
      const { samplings } = model.session;
      samplings.set(added.id, added);
      model.snapshots.push(added.id);
      const old = model.snapshots.splice(0, Math.max(0, model.snapshots.length - MAX_SNAPSHOTS));
      const unneeded = old.flatMap((id) => samplings.get(id) ?? []);
      for (const { id } of unneeded) samplings.delete(id);
      const held = [...samplings.values()].filter(({ folder }) => folder !== undefined);
      unneeded.push(...held.slice(0, Math.max(0, held.length - MAX_SNAPSHOTS * MAX_MODELS_PER_SESSION)));
      for (const one of unneeded) {
        samplings.delete(one.id);
        await forget(one);
      }
    },

    /** @throws OsmosisError `NOT_FOUND`. */
    sampling(owner: string, id: string): Sampling {
      const found = session(owner, id.split(":")[0] ?? "").samplings.get(id);
      if (found === undefined) {
        throw new OsmosisError("NOT_FOUND", `There is no sampling session ${id}.`, {
          hint: `Of a model's snapshots the newest ${MAX_SNAPSHOTS} are kept; save weights by name to keep them.`,
        });
      }
      return found;
    },

    close,

    /** Ends the sessions whose clients are gone, and requests whose turn does not come. */
    async sweep(): Promise<void> {
      for (const { models } of sessions.values())
        for (const { sequence } of models.values()) sequence.expire();
      const limit = now().getTime() - SILENCE_MS;
      await Promise.all([...sessions.values()].filter((one) => one.lastSeenAt < limit).map(close));
    },
  };
}

async function forget({ folder }: Sampling): Promise<void> {
  if (folder !== undefined) await rm(folder, { recursive: true, force: true });
}
