/**
 * A worker's part of a run at a trainer by URL, in a process that a test can kill: a few steps, each committed by a file
 * once its state is saved. It goes on after the last committed one, and prints what the weights think at the end.
 *
 *     node train-by-url.ts URL KEY FOLDER STEPS
 */
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createRemoteService, type Datum } from "@osmosis/engine";

const [url = "", apiKey = "", folder = "", steps = "0"] = process.argv.slice(2);
const committed = (step: number) => join(folder, `committed-${step}`);

const dataOf = (step: number): Datum[] =>
  [5, 8].map((length, index) => {
    const tokens_T = Array.from({ length }, (_, t) => (3 * t + index + step) % 23);
    return {
      tokens_T,
      weights_T: tokens_T.map((_, t) => (t < 2 ? 0 : 0.1)),
      advantages_T: tokens_T.map(() => (index === 0 ? 1 : -0.5)),
      samplerLogprobs_T: tokens_T.map((_, t) => (t < 2 ? 0 : -3)),
    };
  });

await using service = createRemoteService({ url, apiKey, fetch, reduction: "sum" });
await using model = await service.createModel(
  { folder: "osmosis/tiny" },
  { method: { type: "lora", rank: 4, alpha: 32 }, seed: 7 },
);
let done = 0;
while (existsSync(committed(done + 1))) done += 1;
if (done > 0) await model.loadState(join(folder, `state-${done}`));
for (let step = done + 1; step <= Number(steps); step++) {
  await model.forwardBackward(dataOf(step), { type: "importance_sampling" });
  await model.optimStep({
    learningRate: 0.02,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weightDecay: 0,
    gradClipNorm: 1,
  });
  await model.saveState(join(folder, `state-${step}`));
  await writeFile(committed(step), "");
}
const { logprobs_B_T } = await model.forward(dataOf(0), { type: "cross_entropy" });
process.stdout.write(JSON.stringify(logprobs_B_T.map((row) => [...row])));
