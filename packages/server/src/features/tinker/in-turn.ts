import { OsmosisError } from "@osmosis/protocol";
import type { Promises, Result } from "./promises.ts";
import type { LiveModel } from "./sessions.ts";

/**
 * Starts a request of a model, which is executed in its turn.
 *
 * @throws OsmosisError as {@link Promises.start}.
 */
export function startInTurn(
  promises: Promises,
  { id: model_id, session, sequence }: Pick<LiveModel, "id" | "sequence"> & { session: { owner: string } },
  request: { readonly seq_id: number },
  task: () => Promise<Result>,
): { readonly request_id: string; readonly model_id: string } {
  const { seq_id: seqId } = request;
  const id = `${model_id}:${seqId}`;
  const isPast = sequence.isPast(seqId);
  const isAwaited = sequence.isAwaited(seqId);
  promises.start({ id, owner: session.owner, request, isAwaited }, () => {
    if (!isPast) return sequence.run(seqId, task);
    throw new OsmosisError("VALIDATION", `Request ${seqId} was executed; its result is no longer kept.`);
  });
  return { request_id: id, model_id };
}
