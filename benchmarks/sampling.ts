/**
 * How fast the embedded sampler answers: tokens per second at three batch sizes, and the sampling of one GRPO step, in
 * which 16 prompts are answered 8 times each in two calls with a tool result in between.
 *
 *     node benchmarks/sampling.ts [model folder]
 */
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { createEmbeddedService, loadChatCodec } from "@osmosis/engine";
import type { SampleRequest, SampleResult } from "@osmosis/engine";

const folder =
  process.argv[2] ?? fileURLToPath(new URL("../packages/engine/models/tiny-agent", import.meta.url));
const tools = [
  {
    type: "function" as const,
    function: {
      name: "multiply",
      parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
    },
  },
];

const codec = await loadChatCodec(folder);
await using service = createEmbeddedService({ threads: 2 });
await using sampler = await service.openSampler({ folder });

let calls = 0;
const rows: { workload: string; tokensPerSecond: number; milliseconds: number; rssMb: number }[] = [];
for (const batch of [1, 16, 64]) {
  await measure(`batch of ${batch}, 64 tokens each`, async (round) => {
    const answers = await Promise.all(
      Array.from({ length: batch }, (_, i) =>
        answer(prompt(i), { conversation: `${round}-${i}`, maxTokens: 64 }),
      ),
    );
    return answers.flatMap(({ tokens_T }) => tokens_T).length;
  });
}
await measure("GRPO step: 128 episodes, 22 + 10 tokens", async (round) => {
  const counts = await Promise.all(Array.from({ length: 128 }, (_, i) => episode(`${round}-${i}`, i >> 3)));
  return counts.reduce((a, b) => a + b);
});
console.table(rows);
console.log(JSON.stringify({ benchmark: "sampling", cpu: cpus()[0]?.model, cores: cpus().length, rows }));

/** Runs a workload a few times and keeps the median. */
async function measure(workload: string, run: (round: string) => Promise<number>): Promise<void> {
  const seconds: number[] = [];
  let tokens = 0;
  for (let round = 0; round < 6; round++) {
    const start = performance.now();
    tokens = await run(`${workload} ${round}`);
    // The first round warms up.
    if (round > 0) seconds.push((performance.now() - start) / 1000);
  }
  const median = seconds.sort((a, b) => a - b)[seconds.length >> 1] ?? NaN;
  rows.push({
    workload,
    tokensPerSecond: Math.round(tokens / median),
    milliseconds: Math.round(median * 1000),
    rssMb: Math.round(process.memoryUsage().rss / 1e6),
  });
}

async function episode(conversation: string, problem: number): Promise<number> {
  const prompt_T = prompt(problem);
  const call = await answer(prompt_T, { conversation, maxTokens: 22 });
  const result_T = codec.encode("<|im_end|>\n<|im_start|>tool\n12.75<|im_end|>\n<|im_start|>assistant\n");
  const last = await answer([...prompt_T, ...call.tokens_T, ...result_T], { conversation, maxTokens: 10 });
  sampler.endConversation(conversation);
  return call.tokens_T.length + last.tokens_T.length;
}

function prompt(problem: number): number[] {
  return codec.renderPrompt(
    [
      { role: "system", content: "You multiply numbers. Use the tool." },
      { role: "user", content: `What is ${problem + 1.5} times ${3 * problem - 20}?` },
    ],
    tools,
  );
}

/** Without stop tokens, so that every answer has its full length. */
function answer(
  prompt_T: readonly number[],
  options: Pick<SampleRequest, "conversation" | "maxTokens">,
): Promise<SampleResult> {
  const seed = calls++;
  return sampler.sample({ ...options, prompt_T, temperature: 1, topP: 1, stopTokens: [], seed });
}
