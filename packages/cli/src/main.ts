import { createIo, exit } from "./io.ts";
import { runCli } from "./program.ts";

await exit(await runCli(createIo()));
