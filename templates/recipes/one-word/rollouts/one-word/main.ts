import { LocalBackend, serveRollout } from "@osmosis/sdk";
import { OneWordGrader } from "./grader.ts";
import { OneWordWorkflow } from "./workflow.ts";

await serveRollout({ backend: new LocalBackend({ workflow: OneWordWorkflow, grader: OneWordGrader }) });
