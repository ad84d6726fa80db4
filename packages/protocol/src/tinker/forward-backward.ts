/** `forward` and `forward_backward` of the Tinker wire: their JSON, and the same content as protocol buffers. */
import { z } from "zod";
import { OsmosisError } from "../errors.ts";
import {
  bytesOf,
  concatBytes,
  doubleOf,
  entryOf,
  intOf,
  intsOf,
  readMessage,
  textOf,
  writeMessage,
  type Field,
} from "./protobuf.ts";
import {
  float32Bytes,
  int32Bytes,
  int64Bytes,
  itemBytes,
  numbersOf,
  readTensor,
  TinkerTensor,
  writeTensor,
} from "./tensor.ts";

/** Texts only: a sequence of tokens in one or more pieces. */
export const TinkerModelInput = z.object({
  chunks: z.array(z.object({ type: z.literal("encoded_text"), tokens: z.array(z.int()) })),
});

const TinkerDatum = z.object({
  model_input: TinkerModelInput,
  /** `target_tokens`, and by the loss `weights`, or `logprobs` and `advantages`. */
  loss_fn_inputs: z.record(z.string(), TinkerTensor),
});
export type TinkerDatum = z.output<typeof TinkerDatum>;

const ForwardBackwardInput = z.object({
  data: z.array(TinkerDatum).min(1),
  loss_fn: z.string(),
  loss_fn_config: z.record(z.string(), z.union([z.number(), z.string()])).nullish(),
});

export const TinkerForwardBackward = z.object({
  model_id: z.string(),
  seq_id: z.int().positive(),
  forward_backward_input: ForwardBackwardInput,
  /** Protocol buffers only; JSON has `/forward` for it. */
  forward_only: z.boolean().default(false),
});
export type TinkerForwardBackward = z.output<typeof TinkerForwardBackward>;

/** The JSON of `/forward`. */
export const TinkerForward = z.object({
  model_id: z.string(),
  seq_id: z.int().positive(),
  forward_input: ForwardBackwardInput,
});

export const TinkerForwardBackwardOutput = z.object({
  loss_fn_output_type: z.string(),
  /** One record per datum; `logprobs` holds one number per target token. */
  loss_fn_outputs: z.array(z.record(z.string(), TinkerTensor)),
  /** Names end in how results of several requests are merged: `loss:sum`. */
  metrics: z.record(z.string(), z.number()),
});
export type TinkerForwardBackwardOutput = z.output<typeof TinkerForwardBackwardOutput>;

export function encodeForwardBackward(request: TinkerForwardBackward): Uint8Array {
  const { data, loss_fn, loss_fn_config } = request.forward_backward_input;
  const config = Object.entries(loss_fn_config ?? {}).toSorted(byKey);
  return writeMessage((writer) => {
    writer.text(1, request.model_id);
    writer.varint(2, request.seq_id);
    for (const datum of data) {
      writer.message(3, (inner) => {
        for (const { tokens } of datum.model_input.chunks) {
          inner.message(1, (chunk) => chunk.message(1, (text) => text.bytes(1, int32Bytes(tokens))));
        }
        for (const [name, tensor] of Object.entries(datum.loss_fn_inputs).toSorted(byKey)) {
          inner.message(2, (entry) => {
            entry.text(1, name);
            entry.message(2, (value) => writeTensor(value, tensor));
          });
        }
      });
    }
    writer.text(4, loss_fn);
    // Numbers go into both maps: older servers read the first, newer ones the second.
    for (const [name, value] of config) {
      if (typeof value === "string") continue;
      writer.message(5, (entry) => {
        entry.text(1, name);
        entry.double(2, value);
      });
    }
    writer.varint(6, Number(request.forward_only));
    for (const [name, value] of config) {
      writer.message(7, (entry) => {
        entry.text(1, name);
        entry.message(2, (inner) =>
          typeof value === "string" ? inner.text(2, value) : inner.double(1, value),
        );
      });
    }
  });
}

/** @throws OsmosisError `VALIDATION` when the bytes are no such request, or hold images or sound. */
export function decodeForwardBackward(bytes: Uint8Array): TinkerForwardBackward {
  const data: TinkerDatum[] = [];
  const config: Record<string, number | string> = {};
  const request = { model_id: "", seq_id: 0, forward_only: false, loss_fn: "" };
  for (const field of readMessage(bytes)) {
    if (field.number === 1) request.model_id = textOf(field);
    if (field.number === 2) request.seq_id = intOf(field);
    if (field.number === 3) data.push(readDatum(field));
    if (field.number === 4) request.loss_fn = textOf(field);
    if (field.number === 5) {
      const { key, value } = entryOf(field);
      config[key] = value === undefined ? 0 : doubleOf(value);
    }
    if (field.number === 6) request.forward_only = intOf(field) !== 0;
    if (field.number === 7) {
      const { key, value } = entryOf(field);
      for (const part of value === undefined ? [] : readMessage(bytesOf(value))) {
        config[key] = part.number === 1 ? doubleOf(part) : textOf(part);
      }
    }
  }
  const { loss_fn, ...rest } = request;
  return {
    ...rest,
    forward_backward_input: {
      data,
      loss_fn,
      ...(Object.keys(config).length > 0 && { loss_fn_config: config }),
    },
  };
}

function readDatum(field: Field): TinkerDatum {
  const datum: TinkerDatum = { model_input: { chunks: [] }, loss_fn_inputs: {} };
  for (const part of readMessage(bytesOf(field))) {
    if (part.number === 1) datum.model_input.chunks.push(readChunk(part));
    if (part.number === 2) {
      const { key, value } = entryOf(part);
      if (value !== undefined) datum.loss_fn_inputs[key] = readTensor(value);
    }
  }
  return datum;
}

function readChunk(field: Field): TinkerDatum["model_input"]["chunks"][number] {
  let tokens: number[] = [];
  for (const part of readMessage(bytesOf(field))) {
    if (part.number !== 1) throw new OsmosisError("VALIDATION", "Only texts can be trained on.");
    for (const text of readMessage(bytesOf(part))) {
      if (text.number === 1) tokens = numbersOf(bytesOf(text), 3).data;
    }
  }
  return { type: "encoded_text", tokens };
}

export function encodeForwardBackwardOutput(output: TinkerForwardBackwardOutput): Uint8Array {
  const { loss_fn_outputs: outputs } = output;
  const names = Object.keys(outputs[0] ?? {}).toSorted();
  return writeMessage((writer) => {
    writer.text(1, output.loss_fn_output_type);
    writer.message(2, (record) => {
      record.text(1, output.loss_fn_output_type);
      for (const name of names) {
        const tensors = outputs.map((one) => one[name] ?? { data: [], dtype: "float32" as const });
        record.message(2, (entry) => {
          entry.text(1, name);
          entry.message(2, (value) => {
            const isFloat = tensors[0]?.dtype !== "int64";
            const parts = tensors.map(({ data }) => (isFloat ? float32Bytes(data) : int64Bytes(data)));
            const offsets = [0];
            for (const part of parts) offsets.push((offsets.at(-1) ?? 0) + part.length);
            value.bytes(1, concatBytes(parts));
            value.bytes(2, int64Bytes(offsets));
            value.varint(3, isFloat ? 1 : 2);
            value.packed(4, tensors[0]?.shape?.slice(1) ?? []);
          });
        });
      }
      record.varint(3, outputs.length);
    });
    for (const [name, value] of Object.entries(output.metrics).toSorted(byKey)) {
      writer.message(3, (entry) => {
        entry.text(1, name);
        entry.double(2, value);
      });
    }
  });
}

export function decodeForwardBackwardOutput(bytes: Uint8Array): TinkerForwardBackwardOutput {
  const output: TinkerForwardBackwardOutput = {
    loss_fn_output_type: "",
    loss_fn_outputs: [],
    metrics: {},
  };
  for (const field of readMessage(bytes)) {
    if (field.number === 1) output.loss_fn_output_type = textOf(field);
    if (field.number === 2) output.loss_fn_outputs.push(...readRecord(field));
    if (field.number === 3) {
      const { key, value } = entryOf(field);
      output.metrics[key] = value === undefined ? 0 : doubleOf(value);
    }
  }
  return output;
}

/** The outputs of several data, which travel as one tensor per name with the places where each begins. */
function readRecord(field: Field): Record<string, TinkerTensor>[] {
  const outputs: Record<string, TinkerTensor>[] = [];
  const outputAt = (index: number) => (outputs[index] ??= {});
  for (const part of readMessage(bytesOf(field))) {
    if (part.number === 3) for (let index = 0; index < intOf(part); index++) outputAt(index);
    if (part.number !== 2) continue;
    const { key, value } = entryOf(part);
    if (value === undefined) continue;
    let data: Uint8Array = new Uint8Array();
    let offsets: number[] = [];
    let dtype = 0;
    const trailing: number[] = [];
    for (const inner of readMessage(bytesOf(value))) {
      if (inner.number === 1) data = bytesOf(inner);
      if (inner.number === 2) offsets = numbersOf(bytesOf(inner), 2).data;
      if (inner.number === 3) dtype = intOf(inner);
      if (inner.number === 4) trailing.push(...intsOf(inner));
    }
    const row = trailing.reduce((product, size) => product * size, itemBytes(dtype));
    for (let index = 0; index + 1 < offsets.length; index++) {
      const slice = data.subarray(offsets[index], offsets[index + 1]);
      outputAt(index)[key] = { ...numbersOf(slice, dtype), shape: [slice.length / row, ...trailing] };
    }
  }
  return outputs;
}

function byKey([a]: [string, unknown], [b]: [string, unknown]): number {
  return a < b ? -1 : 1;
}
