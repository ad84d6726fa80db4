import { stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import type {
  ChatCodec,
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

/** Reading the tokenizer of a large vocabulary takes this process a good part of a second. */
const MAX_CODECS = 4;

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

    /** The tokenizer and chat template in a folder. */
    codecOf: createCodecs(),

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

/** Tokenizers and templates by their folder, the most recently used last. Those of a folder never change. */
function createCodecs() {
  const known = new Map<string, Promise<ChatCodec>>();
  return (folder: string): Promise<ChatCodec> => {
    const codec =
      known.get(folder) ?? import("@osmosis/engine").then(({ loadChatCodec }) => loadChatCodec(folder));
    known.delete(folder);
    known.set(folder, codec);
    codec.catch(() => known.delete(folder));
    for (const oldest of known.keys()) if (known.size > MAX_CODECS) known.delete(oldest);
    return codec;
  };
}

type Pooled<Model> = {
  readonly opened: Promise<Model>;
  /** Tells weights from those that were saved later under the same name. */
  readonly version: string | undefined;
  uses: number;
};

/** Models of one kind that stay open for the next request: `size` of them, and those in use. */
function createPool<Model extends AsyncDisposable>(
  size: number,
  open: (source: ModelSource) => Promise<Model>,
) {
  /** By their source, the most recently used last. */
  const entries = new Map<string, Pooled<Model>>();
  /** In use still, while others of the same name are in the pool. */
  const replaced = new Set<Pooled<Model>>();

  function take(source: ModelSource, version: string | undefined): Pooled<Model> {
    const key = JSON.stringify([source.folder, source.adapter]);
    const known = entries.get(key);
    // Weights that were deleted meanwhile stay those that were opened.
    const isCurrent = known !== undefined && (version === undefined || known.version === version);
    if (known !== undefined && !isCurrent) replaced.add(known);
    const entry = isCurrent ? known : { opened: open(source), version, uses: 0 };
    entries.delete(key);
    entries.set(key, entry);
    if (!isCurrent) {
      // One that failed to open may be tried again.
      entry.opened.catch(() => {
        if (entries.get(key) === entry) entries.delete(key);
      });
    }
    return entry;
  }

  async function evict(): Promise<void> {
    const unneeded = [...replaced].filter(({ uses }) => uses === 0);
    for (const entry of unneeded) replaced.delete(entry);
    for (const [key, entry] of entries) {
      if (entries.size <= size) break;
      if (entry.uses > 0) continue;
      entries.delete(key);
      unneeded.push(entry);
    }
    for (const { opened } of unneeded) {
      const model = await opened.catch(() => undefined);
      await model?.[Symbol.asyncDispose]();
    }
  }

  return {
    async use<T>(source: ModelSource, work: (model: Model) => Promise<T>): Promise<T> {
      const entry = take(source, await versionOf(source));
      entry.uses += 1;
      try {
        return await work(await entry.opened);
      } finally {
        entry.uses -= 1;
        await evict();
      }
    },

    isUsed: (): boolean => [...entries.values(), ...replaced].some(({ uses }) => uses > 0),

    /** Forgets all of them; their thread is about to end. */
    clear(): void {
      entries.clear();
      replaced.clear();
    },
  };
}

/** Of the folder that a name of weights leads to: saving them again makes another one. Undefined when there is none. */
async function versionOf({ folder, adapter }: ModelSource): Promise<string | undefined> {
  const found = await stat(adapter ?? folder).catch(() => undefined);
  return found === undefined ? undefined : `${found.ino}-${found.mtimeMs}`;
}
