import { availableParallelism } from "node:os";
import type { ModelSource, Sampler, TrainMethod, TrainableModel, TrainingService } from "@osmosis/engine";

/** How many samplers stay open; one that is needed again is opened again. */
const MAX_SAMPLERS = 4;

type OpenSampler = { readonly opened: Promise<Sampler>; uses: number };

export type EngineHost = ReturnType<typeof createEngineHost>;

/**
 * The engine of this server. Its thread starts with the first model and ends when `close` is called; whoever never uses
 * the trainer never loads it.
 */
export function createEngineHost() {
  let service: Promise<TrainingService> | undefined;
  /** By their source, the most recently used last. */
  const samplers = new Map<string, OpenSampler>();

  const start = () => {
    service ??= import("@osmosis/engine").then(({ createEmbeddedService }) =>
      createEmbeddedService({ threads: availableParallelism() }),
    );
    return service;
  };

  function open(source: ModelSource): OpenSampler {
    const key = JSON.stringify([source.folder, source.adapter]);
    const known = samplers.get(key);
    const entry = known ?? { opened: start().then((engine) => engine.openSampler(source)), uses: 0 };
    samplers.delete(key);
    samplers.set(key, entry);
    if (known === undefined) {
      // One that failed to open may be tried again.
      entry.opened.catch(() => samplers.delete(key));
    }
    return entry;
  }

  async function evict(): Promise<void> {
    for (const [key, { opened, uses }] of samplers) {
      if (samplers.size <= MAX_SAMPLERS) return;
      if (uses > 0) continue;
      samplers.delete(key);
      await closed(opened);
    }
  }

  return {
    createModel: async (
      source: ModelSource,
      options: { readonly method: TrainMethod; readonly seed: number },
    ): Promise<TrainableModel> => (await start()).createModel(source, options),

    /** Lets `use` work with a sampler, which is not closed meanwhile. */
    async withSampler<T>(source: ModelSource, use: (sampler: Sampler) => Promise<T>): Promise<T> {
      const entry = open(source);
      entry.uses += 1;
      try {
        return await use(await entry.opened);
      } finally {
        entry.uses -= 1;
        await evict();
      }
    },

    /** Ends the thread, and with it every model. The next model starts another. */
    async close(): Promise<void> {
      const running = service;
      service = undefined;
      samplers.clear();
      await (await running)?.[Symbol.asyncDispose]();
    },
  };
}

async function closed(opened: Promise<Sampler>): Promise<void> {
  const sampler = await opened.catch(() => undefined);
  await sampler?.[Symbol.asyncDispose]();
}
