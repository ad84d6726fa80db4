/** The files of a rollout that loads, runs and scores: an agent without tools, and a grader that compares answers. */
export function scaffoldFiles(name: string): readonly { readonly path: string; readonly text: string }[] {
  return [
    { path: `rollouts/${name}/main.ts`, text: MAIN },
    { path: `rollouts/${name}/workflow.ts`, text: WORKFLOW },
    { path: `rollouts/${name}/grader.ts`, text: GRADER },
    { path: `rollouts/${name}/rollout.test.ts`, text: TEST },
    { path: `rollouts/${name}/package.json`, text: packageJson(name) },
    { path: `rollouts/${name}/README.md`, text: readme(name) },
    { path: `configs/eval/${name}.toml`, text: evalConfig(name) },
    { path: `configs/training/${name}.toml`, text: trainingConfig(name) },
  ];
}

const MAIN = `import { LocalBackend, serveRollout } from "@osmosis/sdk";
import { AnswerGrader } from "./grader.ts";
import { Workflow } from "./workflow.ts";

await serveRollout({ backend: new LocalBackend({ workflow: Workflow, grader: AnswerGrader }) });
`;

const WORKFLOW = `import { Agent } from "@openai/agents";
import { AgentWorkflow, type AgentWorkflowContext } from "@osmosis/sdk";
import { osmosisModel, runOsmosisAgent } from "@osmosis/sdk/openai-agents";

/** One row of the data set: ask the model, once. Add tools and turns here. */
export class Workflow extends AgentWorkflow {
  override async run(ctx: AgentWorkflowContext): Promise<void> {
    const agent = new Agent({ name: "agent", model: osmosisModel() });
    await runOsmosisAgent(agent, ctx.prompt, { maxTurns: 4, signal: ctx.signal });
  }
}
`;

const GRADER = `import { Grader, lastAssistantText, type GraderContext } from "@osmosis/sdk";

/** 1 when the last answer is the row's ground truth, 0 otherwise. Replace it by what your task calls good. */
export class AnswerGrader extends Grader {
  override grade(ctx: GraderContext): void {
    const answer = lastAssistantText(ctx.sample.messages).trim();
    ctx.setReward(answer === ctx.label?.trim() ? 1 : 0);
  }
}
`;

const TEST = `import assert from "node:assert/strict";
import { test } from "node:test";
import { LocalBackend } from "@osmosis/sdk";
import { runRollout, scriptedModel } from "@osmosis/sdk/testing";
import { AnswerGrader } from "./grader.ts";
import { Workflow } from "./workflow.ts";

/** The reward when the model says this. Add what goes wrong in your task: half-right and unreadable answers. */
const REWARDS = { Paris: 1, " Paris\\n": 1, London: 0, "": 0 };

for (const [say, reward] of Object.entries(REWARDS)) {
  void test(\`\${JSON.stringify(say)} is worth \${reward}\`, async () => {
    await using model = await scriptedModel([{ say }]);
    const backend = new LocalBackend({ workflow: Workflow, grader: AnswerGrader });
    const result = await runRollout({ backend, model, prompt: "The capital of France?", label: "Paris" });
    assert.equal(result.status === "success" && result.sample.reward, reward);
    model.assertDone();
  });
}
`;

function packageJson(name: string): string {
  const manifest = {
    name,
    private: true,
    type: "module",
    main: "main.ts",
    dependencies: { "@openai/agents": "0.20.0", "@osmosis/sdk": "0.1.0" },
  };
  return `${JSON.stringify(manifest, null, 2)}\n`;
}

function readme(name: string): string {
  return `# ${name}

What the agent does, and what its grader calls good.

- Write the agent in \`workflow.ts\`, the grader in \`grader.ts\`; \`npm test\` tries both against a scripted model.
- Name your data set and model in \`configs/eval/${name}.toml\` and \`configs/training/${name}.toml\`.
- \`npm install\` at the root, then commit and push, \`package-lock.json\` too: runs use pushed code and that lock.
- Measure: \`osmosis eval submit configs/eval/${name}.toml --wait\`.
- Train only when the evaluation is clean: \`osmosis train submit configs/training/${name}.toml --wait\`.
`;
}

function experiment(name: string): string {
  return `[experiment]
rollout = "${name}"
entrypoint = "main.ts"
model_path = "osmosis/tiny-agent"
dataset = "your-dataset"
# branch = "main"            # or commit_sha, never both
`;
}

function evalConfig(name: string): string {
  return `# Measures a model on a data set. Commented lines show the defaults.

${experiment(name)}
[evaluation]
# limit = 100                # the first 100 rows; default: a random tenth
# n = 1
# batch_size = 8
# pass_threshold = 1.0
# agent_workflow_timeout_s = 450
# grader_timeout_s = 150

[secrets]
required = []
`;
}

function trainingConfig(name: string): string {
  return `# Improves a model by reinforcement learning. Commented lines show the defaults.

${experiment(name)}
[training]
# lr = 1e-5                  # 1e-6 with method = "full"
# total_epochs = 1
# n_samples_per_prompt = 8
# rollout_batch_size = 16
# max_prompt_length = 8192
# max_response_length = 8192
# agent_workflow_timeout_s = 450
# grader_timeout_s = 150

[sampling]
# rollout_temperature = 1.0
# rollout_top_p = 1.0

[checkpoints]
# eval_interval = 20
# checkpoint_save_freq = 20

[advanced]
# holdout_rows = 0           # the first N rows are never trained on
# method = "lora"            # or "full"; configs/AGENTS.md names every other setting
`;
}
