/**
 * What a rollout costs beside its model and its agent: a real rollout server in a process of its own, the gateway, the
 * driver and the recording of tokens, with a model that answers at once and an agent that makes two calls and a tool
 * result.
 *
 *     node benchmarks/rollouts.ts [rollouts]
 *
 * The milliseconds per rollout with one rollout in flight are latency; with 32 in flight they are the cost of two
 * processes on this machine.
 */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { connectRolloutServer, driveRollout, openGateway, systemClock } from "@osmosis/controller";
import { loadChatCodec } from "@osmosis/engine";
import type { Sampler } from "@osmosis/engine";
import { AgentWorkflow, createRolloutServer, currentRollout, Grader, LocalBackend } from "@osmosis/sdk";
import type { AgentWorkflowContext, GraderContext } from "@osmosis/sdk";

const TOOLS = [{ type: "function", function: { name: "multiply", parameters: { type: "object" } } }];
const CALL = '<tool_call>{"name":"multiply","arguments":{"a":2,"b":3}}</tool_call>';

if (process.argv[2] === "--server") await serve();
else await measure(Number(process.argv[2] ?? 400));

/** The rollout server's process; it ends when its stdin closes. */
async function serve(): Promise<void> {
  class TwoCalls extends AgentWorkflow {
    async run({ prompt, signal }: AgentWorkflowContext) {
      const { chatCompletionsUrl, apiKey } = currentRollout();
      const messages: object[] = [...prompt];
      for (let call = 0; call < 2; call++) {
        const response = await fetch(`${chatCompletionsUrl}/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
          body: JSON.stringify({ model: "osmosis-rollout", messages, tools: TOOLS }),
          signal,
        });
        // The gateway's answers have this shape.
        const answer = (await response.json()) as {
          choices: { message: { tool_calls?: { id: string }[] } }[];
        };
        const message = answer.choices[0]?.message ?? {};
        messages.push(message);
        const id = message.tool_calls?.[0]?.id;
        if (id !== undefined) messages.push({ role: "tool", tool_call_id: id, content: "6" });
      }
      return messages;
    }
  }
  class Fixed extends Grader {
    grade(ctx: GraderContext) {
      ctx.setReward(1);
    }
  }
  const artifactRoot = await mkdtemp(join(tmpdir(), "rollouts-"));
  const server = createRolloutServer({
    backend: new LocalBackend({ workflow: TwoCalls, grader: Fixed, concurrency: null }),
    config: { host: "127.0.0.1", port: 0, artifactRoot },
    log: () => undefined,
  });
  await using listening = await server.listen();
  console.log(listening.url);
  await new Promise((resolve) => process.stdin.resume().once("end", resolve));
  await rm(artifactRoot, { recursive: true, force: true });
}

async function measure(count: number): Promise<void> {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), "--server"], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  try {
    const [baseUrl] = await Promise.race([
      new Promise<[string]>((resolve) =>
        createInterface({ input: child.stdout }).once("line", (line) => resolve([line])),
      ),
      new Promise<never>((_, reject) => child.once("exit", () => reject(new Error("the server ended")))),
    ]);
    const codec = await loadChatCodec(
      fileURLToPath(new URL("../packages/engine/fixtures/chatml", import.meta.url)),
    );
    const [stop = 0] = codec.stopTokens;
    const call = [...codec.encode(CALL), stop];
    const answer = [...codec.encode("#### 6"), stop];
    const sampler: Sampler = {
      contextLength: 4096,
      async sample({ prompt_T }) {
        const tokens_T = prompt_T.length > 150 ? answer : call;
        return { tokens_T, logprobs_T: tokens_T.map(() => -0.1), stopReason: "stop", weightsVersion: 0 };
      },
      endConversation: () => undefined,
      async [Symbol.asyncDispose]() {},
    };
    await using gateway = await openGateway({
      policy: { type: "local", name: "instant", sampler, codec },
      clock: systemClock,
    });
    const server = connectRolloutServer({ baseUrl, fetch, clock: systemClock });

    const run = new AbortController();
    let next = 0;
    const drive = async (): Promise<void> => {
      const record = await driveRollout({
        server,
        gateway,
        row: {
          row_index: next++,
          messages: [
            { role: "system", content: "Use the tool, then answer with #### and the number." },
            { role: "user", content: "What is 2 times 3?" },
          ],
          label: "6",
          metadata: null,
        },
        identity: { runId: "benchmark", phase: "train", step: 1, sampleIndex: 0 },
        seed: next,
        sampling: { temperature: 1, topP: 1, maxTokens: 100, wins: "run" },
        timeouts: { agentSeconds: 60, graderSeconds: 60 },
        grade: true,
        clock: systemClock,
        signal: run.signal,
      });
      if (record.outcome !== "ok" || record.model_calls !== 2 || record.sequences.length !== 1) {
        throw new Error(`the rollout went wrong: ${JSON.stringify(record)}`);
      }
    };
    const rows: Record<string, number>[] = [];
    for (const inFlight of [1, 32]) {
      await Promise.all(Array.from({ length: 32 }, drive));
      const start = performance.now();
      let left = count;
      await Promise.all(
        Array.from({ length: inFlight }, async () => {
          while (left-- > 0) await drive();
        }),
      );
      const milliseconds = (performance.now() - start) / count;
      rows.push({
        inFlight,
        rollouts: count,
        millisecondsPerRollout: Number(milliseconds.toFixed(2)),
        rolloutsPerSecond: Math.round(1000 / milliseconds),
      });
    }
    console.table(rows);
    console.log(JSON.stringify({ benchmark: "rollouts", cpu: cpus()[0]?.model, cores: cpus().length, rows }));
  } finally {
    child.stdin.end();
  }
}
