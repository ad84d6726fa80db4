import { LocalBackend, serveRollout } from "@osmosis/sdk";
import { MultiplyGrader } from "./grader.ts";
import { MultiplyWorkflow } from "./workflow.ts";

await serveRollout({ backend: new LocalBackend({ workflow: MultiplyWorkflow, grader: MultiplyGrader }) });
