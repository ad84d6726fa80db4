import { describe, expect, test } from "vitest";
import {
  isInfrastructureFailure,
  isScored,
  outcomeOf,
  RolloutCancelRequest,
  RolloutOutcome,
  RolloutRequest,
  RolloutResultReply,
} from "./index.ts";

const minimal = { initial_messages: [], chat_completions_url: "http://127.0.0.1:1" };

const acceptsCancel = (body: unknown) => RolloutCancelRequest.safeParse(body).success;
const outcome = (fields: object) => outcomeOf(RolloutResultReply.parse(fields));

describe("a rollout request", () => {
  test("may be the polling form, the callback form of the original, and may have fields that nobody knows", () => {
    const full = {
      ...minimal,
      rollout_id: "row-1_run-2",
      label: null,
      metadata: { a: [1] },
      llm_api_key: "k",
      grade: false,
      agent_timeout_sec: 0,
      grader_timeout_sec: -1.5,
      extra_fields: null,
      completion_callback_url: "http://c",
      grader_callback_url: null,
      controller_api_key: "c",
    };
    expect(RolloutRequest.parse({ ...full, surprise: 1 })).toEqual(full);
    expect(RolloutRequest.parse(minimal)).toEqual(minimal);
  });

  test.each(["", ".", "..", "a/b", "a\\b", "a\0b"])("refuses the id %j", (id) => {
    expect(RolloutRequest.safeParse({ ...minimal, rollout_id: id }).success).toBe(false);
  });

  test("refuses timeouts that are not finite and empty keys", () => {
    for (const wrong of [
      { agent_timeout_sec: Infinity },
      { grader_timeout_sec: Number.NaN },
      { llm_api_key: "" },
    ]) {
      expect(RolloutRequest.safeParse({ ...minimal, ...wrong }).success).toBe(false);
    }
  });
});

test("a cancel request names exactly one set", () => {
  expect([{ ids: [] }, { prefix: "a" }, { all: true }].map(acceptsCancel)).toEqual([true, true, true]);
  expect([{}, { all: false }, { ids: ["a"], all: true }].map(acceptsCancel)).toEqual([false, false, false]);
});

describe("the outcome of a result", () => {
  test("names who is to blame", () => {
    const failure = (category: string, phase: string | null = "workflow") =>
      outcome({ status: "failure", err_category: category, err_phase: phase });
    expect(outcome({ status: "success", sample: { messages: [], reward: 0 } })).toBe("ok");
    expect(failure("timeout")).toBe("timeout");
    expect(failure("timeout", "grader")).toBe("grader");
    expect(failure("validation_error", "grader")).toBe("grader");
    expect(failure("validation_error")).toBe("agent");
    expect(failure("agent_error", null)).toBe("agent");
    expect(failure("http_error")).toBe("provider");
    expect(failure("a_later_invention")).toBe("agent");
    expect(outcome({ status: "cancelled" })).toBe("cancelled");
    expect(outcome({ status: "cancelled", err_category: "lease_expired" })).toBe("lost");
  });

  test("does not exist before the end", () => {
    expect(() => outcome({ status: "running" })).toThrow("running has no outcome yet");
  });

  test("is scored or an infrastructure failure, never both", () => {
    const scored = RolloutOutcome.options.filter(isScored);
    const infrastructure = RolloutOutcome.options.filter(isInfrastructureFailure);
    expect(scored).toEqual(["ok", "truncated"]);
    expect(infrastructure).toEqual(["provider", "sandbox", "lost"]);
  });
});
