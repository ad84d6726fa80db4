import { availableParallelism } from "node:os";
import type {
  ModelSource,
  Sampler,
  Scorer,
  TrainMethod,
  TrainableModel,
  TrainingService,
} from "@osmosis/engine";

/** How many samplers stay open; one that is needed again is opened again. */
const MAX_SAMPLERS = 4;

/** Each holds the weights once more. */
const MAX_SCORERS = 2;

export type EngineHost = ReturnType<typeof createEngineHost>;

/**
 * The engine of this server. Its thread starts with the first model and ends when `close` is called; whoever never uses
 * the trainer never loads it.
 */
export function createEngineHost() {
  let service: Promise<TrainingService> | undefined;

  const start = () => {
    service ??= import("@osmosis/engine").then(({ createEmbeddedService }) =>
      createEmbeddedService({ threads: availableParallelism() }),
    );
    return service;
  };
  const samplers = createPool<Sampler>(MAX_SAMPLERS, async (source) => (await start()).openSampler(source));
  const scorers = createPool<Scorer>(MAX_SCORERS, async (source) => (await start()).openScorer(source));

  return {
    createModel: async (
      source: ModelSource,
      options: { readonly method: TrainMethod; readonly seed: number },
    ): Promise<TrainableModel> => (await start()).createModel(source, options),

    /** Lets `use` work with a sampler, which is not closed meanwhile. */
    withSampler: <T>(source: ModelSource, use: (sampler: Sampler) => Promise<T>) => samplers.use(source, use),

    /** The same with a scorer. */
    withScorer: <T>(source: ModelSource, use: (scorer: Scorer) => Promise<T>) => scorers.use(source, use),

    /** Whether somebody samples or scores just now, which needs no session. */
    isSampling: (): boolean => samplers.isUsed() || scorers.isUsed(),

    /** Ends the thread, and with it every model. The next model starts another. */
    async close(): Promise<void> {
      const running = service;
      service = undefined;
      samplers.clear();
      scorers.clear();
      await (await running)?.[Symbol.asyncDispose]();
    },
  };
}

type Pooled<Model> = { readonly opened: Promise<Model>; uses: number };

/** Models of one kind that stay open for the next request: `size` of them, and those in use. */
function createPool<Model extends AsyncDisposable>(
  size: number,
  open: (source: ModelSource) => Promise<Model>,
) {
  /** By their source, the most recently used last. */
  const entries = new Map<string, Pooled<Model>>();

  function take(source: ModelSource): Pooled<Model> {
    const key = JSON.stringify([source.folder, source.adapter]);
    const known = entries.get(key);
    const entry = known ?? { opened: open(source), uses: 0 };
    entries.delete(key);
    entries.set(key, entry);
    if (known === undefined) {
      // One that failed to open may be tried again.
      entry.opened.catch(() => {
        if (entries.get(key) === entry) entries.delete(key);
      });
    }
    return entry;
  }

  async function evict(): Promise<void> {
    for (const [key, { opened, uses }] of entries) {
      if (entries.size <= size) return;
      if (uses > 0) continue;
      entries.delete(key);
      const model = await opened.catch(() => undefined);
      await model?.[Symbol.asyncDispose]();
    }
  }

  return {
    async use<T>(source: ModelSource, work: (model: Model) => Promise<T>): Promise<T> {
      const entry = take(source);
      entry.uses += 1;
      try {
        return await work(await entry.opened);
      } finally {
        entry.uses -= 1;
        await evict();
      }
    },

    isUsed: (): boolean => [...entries.values()].some(({ uses }) => uses > 0),

    /** Forgets all of them; their thread is about to end. */
    clear: (): void => entries.clear(),
  };
}
