import { ModelLost } from "@osmosis/engine";
import { OsmosisError } from "@osmosis/protocol";
import { expect, test } from "vitest";
import type { Bandit } from "../../test/bandit.ts";
import { configOf, curveOf, live, openStore } from "../../test/training-life.ts";

/** A trainer that is started again while rollouts call it, and knows nothing of the model from then on. */
function startedAgainAfter(calls: number): (bandit: Bandit) => Bandit {
  let sampled = 0;
  return (bandit) => ({
    ...bandit,
    async sample(request) {
      if (++sampled > calls) throw new ModelLost(new OsmosisError("NOT_FOUND", "Sampling session not found"));
      return bandit.sample(request);
    },
  });
}

test("a trainer that loses the model while it samples ends the attempt, and no rollout is blamed for it", async () => {
  const [undisturbed, store] = [await openStore(), await openStore()];
  const config = configOf({ max_steps: 4, max_consecutive_failures: 8 });
  await live(undisturbed, { config });
  const { result } = await live(store, { config, trainer: startedAgainAfter(2 * 32 + 10) });
  expect(result).toBeInstanceOf(ModelLost);
  expect(store.steps).toHaveLength(2);
  expect(store.rollouts.filter(({ outcome }) => outcome !== "ok")).toEqual([]);
  expect((await live(store, { config })).result).toEqual({ status: "finished" });
  expect(curveOf(store)).toEqual(curveOf(undisturbed));
});
