/**
 * Keeps threads from being ended inside onnxruntime, which answers that by aborting the whole process. Threads share
 * two numbers: how many calls are under way, and whether a new one may begin.
 */
const UNDER_WAY = 0;
const ENDING = 1;

export type CallFlags = Int32Array<SharedArrayBuffer>;

/** The flags of this thread; without them every call simply runs. */
let flags: CallFlags | undefined;

export function createCallFlags(): CallFlags {
  return new Int32Array(new SharedArrayBuffer(8));
}

/** Counts the calls of this thread in `shared` from now on. */
export function countNativeCalls(shared: CallFlags): void {
  flags = shared;
}

/** Runs a call into onnxruntime, unless its thread is about to be ended: then it never returns. */
export async function nativeCall<Result>(call: () => Promise<Result>): Promise<Result> {
  if (flags === undefined) return call();
  Atomics.add(flags, UNDER_WAY, 1);
  try {
    if (Atomics.load(flags, ENDING) === 0) return await call();
  } finally {
    Atomics.sub(flags, UNDER_WAY, 1);
    Atomics.notify(flags, UNDER_WAY);
  }
  return new Promise(() => {});
}

/** Lets no further call begin, and resolves when none is under way; its threads may be ended then. */
export async function endNativeCalls(shared: CallFlags): Promise<void> {
  Atomics.store(shared, ENDING, 1);
  for (let count = Atomics.load(shared, UNDER_WAY); count > 0; count = Atomics.load(shared, UNDER_WAY)) {
    const wait = Atomics.waitAsync(shared, UNDER_WAY, count);
    if (wait.async) await wait.value;
  }
}

/** `endNativeCalls` for a process that is exiting and cannot wait for promises. */
export function endNativeCallsBlocking(shared: CallFlags): void {
  Atomics.store(shared, ENDING, 1);
  for (let count = Atomics.load(shared, UNDER_WAY); count > 0; count = Atomics.load(shared, UNDER_WAY)) {
    Atomics.wait(shared, UNDER_WAY, count);
  }
}
