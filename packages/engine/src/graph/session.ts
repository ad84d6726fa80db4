import { OsmosisError, errorMessage } from "@osmosis/protocol";
import type * as Onnxruntime from "onnxruntime-node";
import type { BuiltGraph } from "./builder.ts";
import { refuseTelemetry } from "./io.ts";
import { nativeCall } from "./native-calls.ts";

export type TensorData = {
  readonly data: Float32Array | BigInt64Array;
  readonly shape: readonly number[];
};

/** A compiled graph. `run` blocks the thread that calls it, so it belongs into a worker thread. */
export type GraphSession = {
  /** Feeds by input name; sizes by dimension name. Returns the outputs by name; feeds are read in place, not copied. */
  run(
    feeds: Readonly<Record<string, TensorData>>,
    dimensions?: Readonly<Record<string, number>>,
  ): Promise<Record<string, Float32Array>>;
  release(): Promise<void>;
};

type Library = Pick<typeof Onnxruntime, "InferenceSession" | "Tensor">;

export type Runtime = {
  createSession(graph: BuiltGraph): Promise<GraphSession>;
};

/**
 * Loads onnxruntime, with `threads` threads per session.
 * @throws OsmosisError `ENGINE_MISSING` when the library is not installed or does not load on this machine.
 */
export async function loadRuntime(options: {
  readonly threads: number;
  readonly importLibrary?: () => Promise<{ readonly default: Library }>;
}): Promise<Runtime> {
  const { importLibrary = () => import("onnxruntime-node") } = options;
  refuseTelemetry();
  const { InferenceSession, Tensor } = await loadLibrary(importLibrary);
  return {
    async createSession(graph) {
      const create = () =>
        InferenceSession.create(graph.bytes, {
          intraOpNumThreads: options.threads,
          interOpNumThreads: 1,
          executionProviders: ["cpu"],
          // With memory patterns the second run of a large graph stalls for seconds and the process needs twice the memory.
          enableMemPattern: false,
          // Idle threads wait this long, in microseconds, for the next operation before they sleep. The default, which
          // spins for the whole run, takes three times as long when another process needs the cores.
          extra: { session: { intra_op: { spin_duration_us: "30" } } },
          // What goes wrong is thrown, too; the library would also print it.
          logSeverityLevel: 4,
        });
      const session = await nativeCall(create);
      return {
        async run(feeds, dimensions = {}) {
          const tensors: Record<string, Onnxruntime.Tensor> = {};
          for (const { name, type } of graph.inputs) {
            const feed = name.startsWith("dimension:")
              ? dimensionFeed(dimensions, name.slice("dimension:".length))
              : feeds[name];
            if (feed === undefined) throw new Error(`no feed for the graph input ${name}`);
            tensors[name] =
              type === "float32"
                ? new Tensor("float32", feed.data as Float32Array, feed.shape) // the graph declares the type
                : new Tensor("int64", feed.data as BigInt64Array, feed.shape);
          }
          const results = await nativeCall(() => session.run(tensors));
          return Object.fromEntries(
            // Every output of our graphs is float32.
            graph.outputs.map(({ name }) => [name, results[name]?.data as Float32Array]),
          );
        },
        release: () => nativeCall(() => session.release()),
      };
    },
  };
}

function dimensionFeed(dimensions: Readonly<Record<string, number>>, name: string): TensorData {
  const size = dimensions[name];
  if (size === undefined) throw new Error(`no size for the dimension ${name}`);
  return { data: BigInt64Array.of(BigInt(size)), shape: [1] };
}

async function loadLibrary(importLibrary: () => Promise<{ readonly default: Library }>): Promise<Library> {
  try {
    return (await importLibrary()).default;
  } catch (error) {
    throw new OsmosisError("ENGINE_MISSING", `onnxruntime-node does not load: ${errorMessage(error)}`, {
      hint: "Run `ONNXRUNTIME_NODE_INSTALL=skip npm install onnxruntime-node@1.30.0`, or use a remote trainer. There is no build for macOS on Intel.",
      cause: error,
    });
  }
}
