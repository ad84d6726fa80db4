/**
 * Samples many requests at once. A request waits in a queue, then takes a slot of the cache, where it goes through two
 * phases: its prompt, except the last token, is run through the decoder in pieces (what another sequence has computed
 * already is copied instead); from then on every step runs one token of every slot, and draws the next one. Requests
 * join and leave between steps. Which others are under way changes when a result comes, never what it is.
 */
import { setImmediate } from "node:timers/promises";
import { OsmosisError } from "@osmosis/protocol";
import type { SamplingEngine } from "../embedded/sampling-engine.ts";
import type { ModelConfig } from "../model-config.ts";
import type { Weights } from "../safetensors.ts";
import type { SampleRequest, SampleResult } from "../service.ts";
import { drawToken, likeliestToken } from "./choose-token.ts";
import type { Choice } from "./choose-token.ts";
import { layOutWeights } from "./decoder-weights.ts";
import type { DecoderWeights } from "./decoder-weights.ts";
import { Decoder } from "./decoder.ts";
import { commonPrefixLength, PrefixStore } from "./prefix-store.ts";
import { uniformAt } from "./random.ts";
import { checkSampleRequest } from "./check-request.ts";

export type SamplingOptions = {
  readonly config: ModelConfig;
  readonly weights: Weights;
  /** What results call these weights. */
  readonly version: number;
  /** Threads of the decoder, where its results do not depend on them; 1 unless given. */
  readonly threads?: number;
  /** How many requests are decoded together; more wait. */
  readonly maxRows?: number;
  /** Memory for the caches of requests under way; one is let in even if it needs more. */
  readonly maxCacheBytes?: number;
  /** Memory for the caches of ended calls. */
  readonly maxStoredBytes?: number;
};

/**
 * Opens a sampler that works in the thread it is called in, step by step, and lets other work through between steps.
 * Weights are checked when they are given: those that do not fit the config or are not finite are refused with an
 * OsmosisError `VALIDATION`.
 */
export async function openSamplingEngine(options: SamplingOptions): Promise<SamplingEngine> {
  const { config, weights } = options;
  const sampler = await openBatchedSampler({ ...options, weights: layOutWeights(config, weights) });
  return {
    sample: (request) => sampler.sample(request),
    endConversation: (conversation) => sampler.endConversation(conversation),
    setWeights: (next, version) => sampler.setWeights(layOutWeights(config, next), version),
    close: () => sampler.close(),
  };
}

/** The same for weights that are laid out already. */
export async function openBatchedSampler(
  options: Omit<SamplingOptions, "weights"> & { readonly weights: DecoderWeights },
): Promise<BatchedSampler> {
  return new BatchedSampler(await Decoder.create(options.config, options.weights, options.threads), options);
}

/** Prompt tokens that run through the decoder at once; the attention mask grows with them. */
const PROMPT_PIECE = 64;

/** The cache grows in steps of so many tokens; attention reads all of its capacity. */
const CAPACITY_STEP = 32;

type Row = {
  readonly request: SampleRequest;
  /** Prompt and answer. */
  readonly tokens: number[];
  readonly logprobs: number[];
  /** How many tokens have keys and values in the cache. */
  cached: number;
  readonly resolve: (result: SampleResult) => void;
  readonly reject: (reason: unknown) => void;
  readonly onAbort: () => void;
};

export class BatchedSampler {
  readonly #decoder: Decoder;
  readonly #config: ModelConfig;
  readonly #maxRows: number;
  readonly #maxCacheBytes: number;
  readonly #stored: PrefixStore;
  readonly #waiting = new Set<Row>();
  /** Row i has slot i of the cache. */
  readonly #rows: Row[] = [];
  #version: number;
  #next: { readonly weights: DecoderWeights; readonly version: number } | undefined;
  #work: Promise<void> | undefined;
  #closed = false;

  constructor(decoder: Decoder, options: Omit<SamplingOptions, "weights">) {
    const { config, version, maxRows = 128, maxCacheBytes = 2 ** 30, maxStoredBytes = 2 ** 28 } = options;
    this.#decoder = decoder;
    this.#config = config;
    this.#version = version;
    this.#maxRows = maxRows;
    this.#maxCacheBytes = maxCacheBytes;
    this.#stored = new PrefixStore({ maxBytes: maxStoredBytes });
  }

  async sample(request: SampleRequest): Promise<SampleResult> {
    checkSampleRequest(request, this.#config);
    request.signal?.throwIfAborted();
    if (this.#closed) throw closedError();
    return new Promise((resolve, reject) => {
      const row: Row = {
        request,
        tokens: [...request.prompt_T],
        logprobs: [],
        cached: 0,
        resolve,
        reject,
        onAbort: () => {
          if (this.#waiting.delete(row)) reject(request.signal?.reason);
        },
      };
      request.signal?.addEventListener("abort", row.onAbort, { once: true });
      this.#waiting.add(row);
      this.#start();
    });
  }

  endConversation(conversation: string): void {
    this.#stored.forget(conversation);
  }

  /** Requests under way end with the weights that they began with; new ones wait for them to end. */
  setWeights(weights: DecoderWeights, version: number): void {
    this.#next = { weights, version };
    if (this.#rows.length === 0) this.#switchWeights();
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const row of this.#waiting) this.#fail(row, closedError());
    this.#waiting.clear();
    await this.#work;
    await this.#decoder[Symbol.asyncDispose]();
  }

  #start(): void {
    this.#work ??= this.#run();
  }

  async #run(): Promise<void> {
    try {
      while (this.#rows.length > 0 || this.#waiting.size > 0) {
        // Requests that arrive together shall begin together.
        await setImmediate();
        this.#dropAborted();
        if (this.#closed) throw closedError();
        this.#admit();
        await this.#runPrompts();
        await this.#decode();
      }
    } catch (error) {
      for (const row of [...this.#rows, ...this.#waiting]) this.#fail(row, error);
      this.#rows.length = 0;
      this.#waiting.clear();
    }
    // In the same turn in which the last request was seen to be done, or the next one would find nobody working.
    this.#work = undefined;
  }

  #dropAborted(): void {
    for (const row of this.#rows.filter(({ request }) => request.signal?.aborted)) {
      this.#remove(row);
      this.#fail(row, row.request.signal?.reason);
    }
  }

  #switchWeights(): void {
    if (this.#next === undefined) return;
    const { weights, version } = this.#next;
    this.#next = undefined;
    this.#decoder.setWeights(weights);
    this.#version = version;
    this.#stored.clear();
  }

  /** Gives free slots to waiting requests. */
  #admit(): void {
    if (this.#next !== undefined) {
      if (this.#rows.length > 0) return;
      this.#switchWeights();
    }
    const { bytesPerToken } = this.#decoder.cache;
    let longest = Math.max(0, ...this.#rows.map((row) => this.#longestOf(row)));
    for (const row of this.#waiting) {
      const rows = this.#rows.length + 1;
      longest = Math.max(longest, this.#longestOf(row));
      if (rows > this.#maxRows) break;
      if (rows > 1 && rows * longest * bytesPerToken > this.#maxCacheBytes) break;
      this.#waiting.delete(row);
      this.#rows.push(row);
    }
  }

  /** How many tokens a request may come to hold. */
  #longestOf({ request }: Row): number {
    return Math.min(this.#config.contextLength, request.prompt_T.length + request.maxTokens);
  }

  #fitCache(): void {
    const { cache } = this.#decoder;
    const rows = this.#rows.length;
    const longest = Math.max(...this.#rows.map(({ tokens }) => tokens.length));
    const needed = Math.ceil(longest / CAPACITY_STEP) * CAPACITY_STEP;
    // Growing copies the whole cache, so a batch that has just begun may as well start small again.
    const isNew = this.#rows.every(({ cached }) => cached === 0);
    const capacity = isNew ? needed : Math.max(needed, cache.capacity);
    const slots =
      rows <= cache.slots ? cache.slots : Math.min(this.#maxRows, Math.max(rows, 2 * cache.slots));
    cache.resize(slots, capacity, isNew ? 0 : rows);
  }

  /** Fills a slot with what is known of its prompt. The last token is left out: its hidden state is needed. */
  #copyKnownPrefix(row: Row, slot: number): void {
    const { cache } = this.#decoder;
    const useful = row.tokens.length - 1;
    const stored = this.#stored.findLongest(row.tokens);
    const storedLength = Math.min(stored?.length ?? 0, useful);
    let best = -1;
    let bestLength = storedLength;
    for (const [i, other] of this.#rows.entries()) {
      if (i === slot) continue;
      const length = Math.min(commonPrefixLength(other.tokens, row.tokens), other.cached, useful);
      if (length <= bestLength) continue;
      best = i;
      bestLength = length;
    }
    if (best >= 0) cache.copySlot(best, slot);
    else if (stored !== undefined) cache.restoreSlot(slot, stored.prefix.slot, storedLength);
    row.cached = bestLength;
  }

  async #runPrompts(): Promise<void> {
    if (this.#rows.length === 0) return;
    this.#fitCache();
    for (const [slot, row] of this.#rows.entries()) {
      if (row.cached === 0) this.#copyKnownPrefix(row, slot);
      const end = row.tokens.length - 1;
      while (row.cached < end && !row.request.signal?.aborted) {
        const start = row.cached;
        const tokens = row.tokens.slice(start, Math.min(end, start + PROMPT_PIECE));
        await this.#decoder.run({ firstSlot: slot, rows: [{ tokens, start }] });
        row.cached += tokens.length;
        if (row.cached < end) await setImmediate();
      }
    }
  }

  /** One token of every row. */
  async #decode(): Promise<void> {
    this.#dropAborted();
    const rows = [...this.#rows];
    if (rows.length === 0) return;
    this.#fitCache();
    const hidden = await this.#decoder.run({
      firstSlot: 0,
      rows: rows.map(({ tokens, cached }) => ({ tokens: tokens.slice(cached), start: cached })),
    });
    const count = hidden.length / this.#config.hiddenSize;
    const inverseTemperatures = new Float32Array(count).fill(1);
    for (const [i, { request }] of rows.entries()) {
      if (request.temperature > 0) inverseTemperatures[i] = 1 / request.temperature;
    }
    const probabilities = await this.#decoder.probabilities(hidden, inverseTemperatures);
    const size = this.#config.vocabSize;
    for (const [i, row] of rows.entries()) {
      row.cached++;
      this.#append(row, chooseToken(row, probabilities.subarray(i * size, (i + 1) * size)));
    }
  }

  #append(row: Row, choice: Choice): void {
    const { request, tokens, logprobs } = row;
    if (!Number.isFinite(choice.logprob)) {
      this.#decoder.cache.clearSlot(this.#rows.indexOf(row));
      this.#remove(row);
      this.#fail(
        row,
        new OsmosisError("INTERNAL", "The model's probabilities are not finite.", {
          hint: "Training diverged: lower the learning rate, or continue from an earlier checkpoint.",
        }),
      );
      return;
    }
    tokens.push(choice.token);
    logprobs.push(choice.logprob);
    const stopped = request.stopTokens.includes(choice.token);
    const full = logprobs.length >= request.maxTokens || tokens.length >= this.#config.contextLength;
    if (!stopped && !full) return;

    this.#store(row);
    this.#remove(row);
    request.signal?.removeEventListener("abort", row.onAbort);
    row.resolve({
      tokens_T: tokens.slice(request.prompt_T.length),
      logprobs_T: logprobs,
      stopReason: stopped ? "stop" : "length",
      weightsVersion: this.#version,
    });
  }

  #store({ request, tokens, cached }: Row): void {
    const slot = this.#rows.findIndex((row) => row.tokens === tokens);
    this.#stored.add({
      conversation: request.conversation,
      tokens: tokens.slice(0, cached),
      slot: this.#decoder.cache.storeSlot(slot),
    });
  }

  /** Frees a row's slot; the last row moves there, so that the slots in use stay together. */
  #remove(row: Row): void {
    const slot = this.#rows.indexOf(row);
    const last = this.#rows.pop();
    if (last === undefined || last === row) return;
    this.#decoder.cache.copySlot(this.#rows.length, slot);
    this.#rows[slot] = last;
  }

  #fail(row: Row, reason: unknown): void {
    row.request.signal?.removeEventListener("abort", row.onAbort);
    row.reject(reason);
  }
}

function chooseToken({ request, logprobs }: Row, probabilities_V: Float32Array): Choice {
  if (request.temperature === 0) return likeliestToken(probabilities_V);
  return drawToken(probabilities_V, request, uniformAt(request.seed, logprobs.length));
}

function closedError(): OsmosisError {
  return new OsmosisError("INTERNAL", "The sampler is closed.");
}
