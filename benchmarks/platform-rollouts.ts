/**
 * Rollouts per second through the whole platform: `osmosis up` with server, queue and worker, an evaluation run of the
 * multiply rollout from the workspace template, the gateway, and a model that answers at once. What a rollout costs here
 * is everything: the agent's own code, the gateway, the rollout wire, recording in SQL and blobs, and the share of
 * `osmosis up` itself; only the model is free.
 *
 *     node benchmarks/platform-rollouts.ts [rows in flight] [rollouts]
 */
import { createServer } from "node:http";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { evalRoutes } from "@osmosis/protocol";
import { startTestPlatform } from "../tests/end-to-end/support/platform.ts";

const inFlight = Number(process.argv[2] ?? 32);
const rollouts = Number(process.argv[3] ?? 1000);

/** An OpenAI-compatible endpoint: the tool call at first, and its result as the answer. */
const model = createServer((request, response) => {
  let body = "";
  request.setEncoding("utf8").on("data", (chunk: string) => (body += chunk));
  request.on("end", () => {
    const { messages } = JSON.parse(body) as { messages: { role: string; content: string }[] };
    const last = messages.at(-1);
    const call = {
      id: "call_0",
      type: "function",
      function: { name: "multiply", arguments: '{"a":2,"b":3}' },
    };
    const message =
      last?.role === "tool"
        ? { role: "assistant", content: `#### ${last.content}` }
        : { role: "assistant", content: null, tool_calls: [call] };
    response.setHeader("content-type", "application/json").end(
      JSON.stringify({
        id: "instant",
        object: "chat.completion",
        created: 0,
        model: "instant",
        choices: [{ index: 0, message, finish_reason: last?.role === "tool" ? "stop" : "tool_calls" }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      }),
    );
  });
});
await new Promise<void>((resolve) => model.listen(0, "127.0.0.1", resolve));
const address = model.address();
const port = typeof address === "object" && address !== null ? address.port : 0;

try {
  await using platform = await startTestPlatform({ env: { OPENAI_API_KEY: "instant" } });
  const config = join(platform.workspace, "configs/eval/instant.toml");
  await mkdir(dirname(config), { recursive: true });
  await writeFile(
    config,
    `[experiment]
rollout = "multiply-local-openai"
entrypoint = "main.ts"
model_path = "openai/instant"
dataset = "multiply"

[evaluation]
limit = ${rollouts}
batch_size = ${inFlight}

[env]
OPENAI_BASE_URL = "http://127.0.0.1:${port}"

[secrets]
required = ["OPENAI_API_KEY"]
`,
  );
  await platform.answerOf("dataset", "upload", "data/multiply.jsonl", "--yes");
  await platform.answerOf("eval", "submit", config, "--yes", "--wait");
  const { eval_runs } = await platform.client.call(evalRoutes.list, { query: {} });
  const [run] = eval_runs;
  if (run?.status !== "finished") throw new Error(`the run ended ${run?.status}: ${run?.error}`);
  const ended = await timesOfRollouts(run.name);
  const seconds = (Math.max(...ended) - Math.min(...ended)) / 1000;
  const perRollout = (seconds * 1000) / (ended.length - 1);
  console.log(
    `${ended.length} rollouts, ${inFlight} in flight: ${(ended.length / seconds).toFixed(0)} rollouts/s, ` +
      `${perRollout.toFixed(1)} ms per rollout, agent code included (aim: under 10 ms without it)`,
  );

  /** When each rollout was recorded, in milliseconds since 1970. */
  async function timesOfRollouts(name: string): Promise<number[]> {
    const times: number[] = [];
    for (let offset: number | null = 0; offset !== null;) {
      const page: { rollouts: { created_at: string }[]; next_offset: number | null } =
        await platform.client.call(evalRoutes.rollouts, { params: { name }, query: { offset } });
      times.push(...page.rollouts.map(({ created_at }) => Date.parse(created_at)));
      offset = page.next_offset;
    }
    return times;
  }
} finally {
  model.close();
  model.closeAllConnections();
}
