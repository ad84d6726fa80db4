import { readFile, rm, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { errorMessage, OsmosisError } from "@osmosis/protocol";
import { z } from "zod";
import type { Context } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { formatBytes } from "../output/format.ts";
import type { OperationResult } from "../output/result.ts";
import { makeFolder } from "../output/target-folder.ts";
import { openSession } from "../platform/session.ts";
import { isSafe } from "../platform/url.ts";
import { downloadFile, type RemoteFile } from "./file-download.ts";
import {
  modelName,
  offeringWeightless,
  registerModel,
  WEIGHTLESS_OFFER,
  type ImportOptions,
} from "./import.ts";

export type PullOptions = ImportOptions & { readonly revision: string };

const DEFAULT_HUB_URL = "https://huggingface.co";

/** Small files of a model; the weights are found by what the repository holds. */
const SMALL_FILES = new Set([
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "chat_template.jinja",
]);

/**
 * Downloads a model from the Hugging Face hub, or the mirror that `OSMOSIS_HUB_URL` names, and registers it as a base
 * model. A download that broke off goes on at the next call; the files are deleted when the platform has them.
 */
export async function pullModel(
  context: Context,
  id: string,
  options: PullOptions,
): Promise<OperationResult> {
  // The id becomes part of an address and of a path.
  modelName(id);
  const name = modelName(options.name ?? id);
  // Rather now than after gigabytes.
  await openSession(context);
  const hub = openHub(context);
  const { commit, files } = await listFiles(context, hub, id, options.revision);
  const folder = join(cacheFolder(context), ...id.split("/"), commit);
  const withoutWeights = options.withoutWeights === true;
  const wanted = wantedFiles(
    id,
    files.map(({ name: file }) => file),
    withoutWeights,
  );
  await requireRoom(
    id,
    folder,
    files.filter(({ name: file }) => wanted.includes(file)),
  );
  const progress = context.progress();
  try {
    for (const file of wanted) {
      const from: RemoteFile = {
        locate: () => new URL(`${hub.url}/${id}/resolve/${commit}/${file}`),
        name: `${id}/${file}`,
        refusal: hubError,
      };
      await downloadFile(from, join(folder, file), {
        fetch: context.io.fetch,
        signal: context.io.interrupted,
        token: hub.token,
        onProgress: (done, total) =>
          progress.update({
            label: `Downloading ${file}`,
            ...(total === undefined ? {} : { percent: Math.floor((100 * done) / total) }),
            text: total === undefined ? formatBytes(done) : `${formatBytes(done)} of ${formatBytes(total)}`,
          }),
      });
      if (file === "config.json") {
        await checkConfig(join(folder, file), { name: `${id}/${file}`, withoutWeights });
      }
    }
  } finally {
    progress.stop();
  }
  const registered = await registerModel(context, {
    path: folder,
    name,
    operation: "model.pull",
    overwrite: options.overwrite === true,
    withoutWeights,
  });
  await rm(folder, { recursive: true, force: true });
  return registered;
}

type Hub = { readonly url: string; readonly token: string | undefined };

function openHub({ env }: Context): Hub {
  const text = env["OSMOSIS_HUB_URL"] || env["HF_ENDPOINT"] || DEFAULT_HUB_URL;
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol)) {
    throw new UsageError(
      `OSMOSIS_HUB_URL is "${text}", which is no URL.`,
      `It looks like ${DEFAULT_HUB_URL}.`,
    );
  }
  const url = text.replace(/\/+$/, "");
  // A token never travels in the clear to another machine.
  return { url, token: isSafe(url) ? env["HF_TOKEN"] || undefined : undefined };
}

function cacheFolder({ env, io }: Context): string {
  return join(env["XDG_CACHE_HOME"] || join(io.home, ".cache"), "osmosis", "models");
}

const Repository = z.object({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  siblings: z.array(z.object({ rfilename: z.string(), size: z.number().nonnegative().nullish() })),
});

/** A file of a model; its size is 0 where the hub does not tell it. */
type HubFile = { readonly name: string; readonly size: number };

async function listFiles(
  { io }: Context,
  hub: Hub,
  id: string,
  revision: string,
): Promise<{ commit: string; files: HubFile[] }> {
  // With `blobs` a hub tells the sizes of its files.
  const url = new URL(`${hub.url}/api/models/${id}/revision/${encodeURIComponent(revision)}?blobs=true`);
  let response: Response;
  let text: string;
  try {
    response = await io.fetch(url, {
      headers: hub.token === undefined ? {} : { authorization: `Bearer ${hub.token}` },
      signal: AbortSignal.any([io.interrupted, AbortSignal.timeout(30_000)]),
    });
    text = await response.text();
  } catch (error) {
    if (io.interrupted.aborted) throw error;
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    throw new OsmosisError("NETWORK", `No answer from the hub at ${hub.url}: ${errorMessage(cause)}.`, {
      hint: "Check the network, or set OSMOSIS_HUB_URL to a mirror. A folder on this machine: `osmosis model import FOLDER`.",
      cause: error,
    });
  }
  if (!response.ok)
    throw hubError(response.status, revision === "main" ? `model ${id}` : `model ${id} at ${revision}`);
  const repository = Repository.safeParse(parseJson(text));
  if (!repository.success) {
    throw new OsmosisError(
      "NETWORK",
      `${url} did not answer as a hub does: ${z.prettifyError(repository.error)}.`,
      {
        hint: "Check OSMOSIS_HUB_URL.",
      },
    );
  }
  const { sha, siblings } = repository.data;
  return {
    commit: sha,
    files: siblings.map(({ rfilename, size }) => ({ name: rfilename, size: size ?? 0 })),
  };
}

/** @throws OsmosisError `STORAGE` when what is still to come is more than the disk has room for. */
async function requireRoom(id: string, folder: string, files: readonly HubFile[]): Promise<void> {
  await makeFolder(folder);
  let missing = 0;
  for (const { name, size } of files) {
    const path = join(folder, name);
    const found = await stat(path).catch(() => stat(`${path}.partial`).catch(() => undefined));
    missing += Math.max(0, size - (found?.size ?? 0));
  }
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  if (missing <= free) return;
  throw new OsmosisError(
    "STORAGE",
    `${id} needs ${formatBytes(missing)} more for its download, and the disk of ${folder} has ${formatBytes(free)} free.`,
    { hint: "Free some space, or set XDG_CACHE_HOME to a folder on a larger disk." },
  );
}

/** config.json first: it tells whether the rest is worth it. */
function wantedFiles(id: string, files: readonly string[], withoutWeights: boolean): string[] {
  const index = "model.safetensors.index.json";
  const shards = files.filter((file) => /^model-\d+-of-\d+\.safetensors$/.test(file));
  const whole = files.includes(index)
    ? [index, ...shards]
    : files.filter((file) => file === "model.safetensors");
  const weights = withoutWeights ? [] : whole;
  const small = files.filter((file) => SMALL_FILES.has(file)).toSorted();
  const missing = ["config.json", "tokenizer.json", "tokenizer_config.json"].filter(
    (file) => !small.includes(file),
  );
  if (weights.length === 0 && !withoutWeights) missing.push("model.safetensors");
  if (missing.length === 0) return [...small.toSorted((a, b) => rank(a) - rank(b)), ...weights];
  const gguf = files.find((file) => file.endsWith(".gguf"));
  const hint =
    gguf === undefined
      ? "Choose a model that is stored as safetensors with a tokenizer.json."
      : `It has GGUF files: download one (such as ${gguf}) and run \`osmosis model import FILE.gguf\`.`;
  throw new OsmosisError("VALIDATION", `${id} has no ${missing.join(", ")}.`, {
    hint: missing.join() === "model.safetensors" ? `${hint} ${WEIGHTLESS_OFFER}` : hint,
  });
}

const rank = (file: string): number => (file === "config.json" ? 0 : 1);

async function checkConfig(
  path: string,
  { name, withoutWeights }: { readonly name: string; readonly withoutWeights: boolean },
): Promise<void> {
  const { parseModelConfig, parseModelSize } = await import("@osmosis/controller/model");
  const value = parseJson(await readFile(path, "utf8"));
  if (withoutWeights) parseModelSize(value, name);
  else await offeringWeightless(async () => parseModelConfig(value, name));
}

/** What is no JSON is refused by the schema that comes next. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What an answer of the hub that is no success means. */
function hubError(status: number, what: string): OsmosisError {
  switch (status) {
    case 401:
      return new OsmosisError(
        "AUTH_REQUIRED",
        `The hub does not show ${what} without signing in, or it does not exist.`,
        {
          hint: "Check the spelling. For a gated or private model, accept its terms on the hub and set HF_TOKEN.",
        },
      );
    case 403:
      return new OsmosisError("FORBIDDEN", `The hub refuses ${what}.`, {
        hint: "Accept the model's terms on the hub, and set HF_TOKEN to a token of that account.",
      });
    case 404:
      return new OsmosisError("NOT_FOUND", `The hub has no ${what}.`, {
        hint: "Check the spelling of its id.",
      });
    case 429:
      return new OsmosisError("RATE_LIMITED", `The hub limits how often ${what} may be asked for.`, {
        hint: "Wait a while, or set HF_TOKEN: people who are signed in may ask more often.",
      });
    default:
      return new OsmosisError(
        status >= 500 ? "PLATFORM_ERROR" : "NETWORK",
        `The hub answered ${status} for ${what}.`,
        {
          hint: "Try again later, or set OSMOSIS_HUB_URL to a mirror.",
        },
      );
  }
}
