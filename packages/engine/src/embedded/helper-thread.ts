import { Worker } from "node:worker_threads";
import { fromFailure, type Failure } from "./messages.ts";
import type { WorkerData } from "./worker-data.ts";

/** A thread that helps the engine's own: it answers each numbered call once. */
export type HelperThread<Message, Result> = {
  /** Calls on their way. */
  load(): number;
  post(message: Message): void;
  /**
   * Posts a message that has the call's number. When the signal aborts, `withdraw` is posted; the call is answered all
   * the same.
   *
   * @throws the signal's reason, what the thread failed with, or that it has stopped.
   */
  call(
    message: (id: number) => Message,
    abortable?: { readonly signal: AbortSignal | undefined; readonly withdraw: (id: number) => Message },
  ): Promise<Result>;
  /** Posts a last message, after which the thread ends, and waits for that. */
  end(last: Message): Promise<void>;
};

export type FromHelper<Result> = { readonly id: number } & (
  | { readonly result: Result }
  | { readonly failure: Failure }
);

type Pending<Result> = {
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
};

export function startHelper<Message, Result>(entry: URL, data: WorkerData): HelperThread<Message, Result> {
  const worker = new Worker(entry, { workerData: data, execArgv: [] });
  const pending = new Map<number, Pending<Result>>();
  let lastId = 0;
  let failed: Error | undefined;
  const fail = (error: Error): void => {
    failed ??= error;
    for (const { reject } of pending.values()) reject(failed);
    pending.clear();
  };
  const post = (message: Message): void => worker.postMessage(message, []);
  worker.on("message", (message: FromHelper<Result>) => {
    const call = pending.get(message.id);
    pending.delete(message.id);
    if ("failure" in message) call?.reject(fromFailure(message.failure));
    else call?.resolve(message.result);
  });
  worker.on("error", (error) => fail(error instanceof Error ? error : new Error(String(error))));
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  worker.on("exit", () => {
    fail(new Error("a helper thread of the engine has stopped"));
    end();
  });
  return {
    load: () => pending.size,
    post,
    call: (message, abortable) =>
      new Promise((resolve, reject) => {
        const signal = abortable?.signal;
        if (failed !== undefined) return reject(failed);
        if (signal?.aborted) return reject(signal.reason);
        const id = ++lastId;
        const onAbort = (): void => {
          if (abortable !== undefined) post(abortable.withdraw(id));
        };
        signal?.addEventListener("abort", onAbort, { once: true });
        const settled = (): void => signal?.removeEventListener("abort", onAbort);
        pending.set(id, {
          resolve: (result) => {
            settled();
            resolve(result);
          },
          reject: (error) => {
            settled();
            reject(signal?.aborted ? signal.reason : error);
          },
        });
        post(message(id));
      }),
    async end(last) {
      post(last);
      await ended;
    },
  };
}
