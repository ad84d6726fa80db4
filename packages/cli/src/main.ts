import { createIo, exit } from "./io.ts";
import { runCli } from "./program.ts";

exit(await runCli(createIo()));
