/** What the main thread and the engine's worker thread say to each other. */
import { OsmosisError, type ErrorCode } from "@osmosis/protocol";
import type {
  AdamParams,
  Datum,
  ForwardBackwardResult,
  LossSpec,
  ModelSource,
  OptimStepResult,
  SampleRequest,
  SampleResult,
  TrainMethod,
} from "../service.ts";

export type Command =
  | { readonly type: "openSampler" | "openScorer"; readonly source: ModelSource }
  | {
      readonly type: "createModel";
      readonly source: ModelSource;
      readonly method: TrainMethod;
      readonly seed: number;
    }
  | {
      readonly type: "evaluate";
      readonly model: number;
      readonly data: PackedData;
      readonly loss: LossSpec;
      readonly temperature: number;
      readonly gradient: boolean;
    }
  | {
      readonly type: "score";
      readonly model: number;
      readonly data: PackedData;
      readonly temperature: number;
    }
  | { readonly type: "optimStep"; readonly model: number; readonly params: AdamParams }
  | { readonly type: "sample"; readonly model: number; readonly request: Omit<SampleRequest, "signal"> }
  | { readonly type: "endConversation"; readonly model: number; readonly conversation: string }
  | { readonly type: "syncSampler"; readonly model: number }
  | {
      readonly type: "saveWeights" | "saveState" | "loadState";
      readonly model: number;
      readonly folder: string;
    }
  | { readonly type: "close"; readonly model: number };

export type Opened = { readonly model: number; readonly contextLength: number };

/** The answer to each command. */
export type Answers = {
  readonly openSampler: Opened;
  readonly openScorer: Opened;
  readonly createModel: Opened;
  readonly evaluate: ForwardBackwardResult;
  readonly score: Pick<ForwardBackwardResult, "logprobs_B_T">;
  readonly optimStep: OptimStepResult;
  readonly sample: SampleResult;
  readonly endConversation: null;
  readonly syncSampler: number;
  readonly saveWeights: null;
  readonly saveState: null;
  readonly loadState: null;
  readonly close: null;
};

/** `abort` withdraws the command of that id; it is answered all the same. */
export type ToWorker = { readonly id: number } & ({ readonly command: Command } | { readonly abort: true });

export type FromWorker = { readonly id: number } & (
  | { readonly answer: Answers[keyof Answers] }
  | { readonly failure: Failure }
);

/** An error on its way between threads; structured cloning would lose the code of an `OsmosisError`. */
export type Failure = {
  readonly code?: ErrorCode;
  readonly hint?: string;
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
};

export function toFailure(error: unknown): Failure {
  if (!(error instanceof Error)) return { name: "Error", message: String(error) };
  const { name, message, stack } = error;
  const known =
    error instanceof OsmosisError ? { code: error.code, ...(error.hint && { hint: error.hint }) } : {};
  return { name, message, ...(stack && { stack }), ...known };
}

export function fromFailure({ code, hint, name, message, stack }: Failure): Error {
  if (code !== undefined) return new OsmosisError(code, message, hint === undefined ? {} : { hint });
  return Object.assign(new Error(message), { name, ...(stack && { stack }) });
}

/** Training sequences as one buffer, which is moved to the other thread instead of copied. */
export type PackedData = { readonly lengths: readonly number[]; readonly values: Float64Array };

const FIELDS = ["tokens_T", "weights_T", "advantages_T", "samplerLogprobs_T"] as const;

/** The four arrays of each datum, one datum after the other; all four must have the length of the tokens. */
export function packData(data_B: readonly Datum[]): PackedData {
  const lengths = data_B.map(({ tokens_T }) => tokens_T.length);
  const values = new Float64Array(FIELDS.length * lengths.reduce((sum, length) => sum + length, 0));
  let offset = 0;
  for (const [index, datum] of data_B.entries()) {
    for (const field of FIELDS) {
      if (datum[field].length !== datum.tokens_T.length) {
        throw new OsmosisError(
          "VALIDATION",
          `Datum ${index}: ${field} has ${datum[field].length} entries for ${datum.tokens_T.length} tokens.`,
        );
      }
      values.set(datum[field], offset);
      offset += datum.tokens_T.length;
    }
  }
  return { lengths, values };
}

export function unpackData({ lengths, values }: PackedData): Datum[] {
  let offset = 0;
  return lengths.map((length) => {
    const next = (): number[] => {
      offset += length;
      return [...values.subarray(offset - length, offset)];
    };
    return { tokens_T: next(), weights_T: next(), advantages_T: next(), samplerLogprobs_T: next() };
  });
}
