import { z } from "zod";
import type { CallFlags } from "../graph/native-calls.ts";

/** What the threads of the engine are started with. */
export const WorkerData = z.object({
  threads: z.int().positive(),
  callFlags: z.custom<CallFlags>((value) => value instanceof Int32Array),
});
export type WorkerData = z.infer<typeof WorkerData>;
