import { expect, test } from "vitest";
import golden from "../../fixtures/tinker.json" with { type: "json" };
import {
  decodeForwardBackward,
  decodeForwardBackwardOutput,
  encodeForwardBackward,
  encodeForwardBackwardOutput,
  type TinkerForwardBackward,
  type TinkerForwardBackwardOutput,
} from "./forward-backward.ts";
import { readMessage } from "./protobuf.ts";
import { decodeSampleResponse, encodeSampleResponse, type TinkerSampleResponse } from "./sample.ts";

const bytesOf = (base64: string) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

const floats = (data: number[]) => ({ data, dtype: "float32" as const, shape: [data.length] });
const ints = (data: number[]) => ({ data, dtype: "int64" as const, shape: [data.length] });

const datum = (tokens: number[], targets: number[]) => ({
  model_input: { chunks: [{ type: "encoded_text" as const, tokens }] },
  loss_fn_inputs: {
    advantages: floats(targets.map(() => 0.5)),
    logprobs: floats(targets.map(() => -0.25)),
    target_tokens: ints(targets),
  },
});

const REQUEST: TinkerForwardBackward = {
  model_id: "s:train:0",
  seq_id: 300,
  forward_only: true,
  forward_backward_input: {
    data: [datum([1, 2, 70_000], [2, 70_000, 5]), datum([7], [8])],
    loss_fn: "ppo",
    loss_fn_config: { clip_high_threshold: 1.25, clip_low_threshold: 0.75 },
  },
};

const OUTPUT: TinkerForwardBackwardOutput = {
  loss_fn_output_type: "TensorRecord",
  loss_fn_outputs: [{ logprobs: floats([-0.5, -1.5, -2.5]) }, { logprobs: floats([-4]) }],
  metrics: { "loss:sum": 3.25 },
};

const SAMPLED: TinkerSampleResponse = {
  type: "sample",
  sequences: [
    { stop_reason: "length", tokens: [3, 70_000], logprobs: [-0.5, -0.125] },
    { stop_reason: "stop", tokens: [2], logprobs: [0] },
  ],
};

test("requests have the bytes that the official SDK writes", () => {
  expect(encodeForwardBackward(REQUEST)).toEqual(bytesOf(golden.forward_backward));
  expect(decodeForwardBackward(bytesOf(golden.forward_backward))).toEqual(REQUEST);
});

test("results of a forward pass have the bytes that the official SDK reads", () => {
  expect(encodeForwardBackwardOutput(OUTPUT)).toEqual(bytesOf(golden.forward_backward_output));
  expect(decodeForwardBackwardOutput(bytesOf(golden.forward_backward_output))).toEqual(OUTPUT);
});

test("samples have the bytes that the official SDK reads", () => {
  expect(encodeSampleResponse(SAMPLED)).toEqual(bytesOf(golden.sample_response));
  expect(decodeSampleResponse(bytesOf(golden.sample_response))).toEqual(SAMPLED);
});

test("a message that was cut anywhere is refused or read as a shorter one, never read past its end", () => {
  const whole = bytesOf(golden.forward_backward);
  for (let length = 0; length < whole.length; length++) {
    try {
      decodeForwardBackward(whole.subarray(0, length));
    } catch (error) {
      expect(error).toMatchObject({ code: "VALIDATION" });
    }
  }
  expect(() => [...readMessage(Uint8Array.of(0x0f))]).toThrow("unknown type 7");
});
