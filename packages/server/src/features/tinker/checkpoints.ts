import { randomUUID } from "node:crypto";
import { existsSync, renameSync } from "node:fs";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { OsmosisError } from "@osmosis/protocol";
import { z } from "zod";

const Method = z.union([
  z.object({ type: z.literal("full") }),
  z.object({
    type: z.literal("lora"),
    rank: z.int(),
    alpha: z.number(),
    layers: z.enum(["attention", "feed_forward"]).exactOptional(),
  }),
]);

const Meta = z.object({
  owner: z.string(),
  run_id: z.string(),
  kind: z.enum(["weights", "sampler_weights"]),
  name: z.string(),
  base_model: z.string(),
  method: Method,
  created_at: z.string(),
  size_bytes: z.number(),
});
type Meta = z.output<typeof Meta>;

/** Saved weights. `weights` are for the engine to open; a training checkpoint has the trainer's `state`, too. */
export type Checkpoint = Meta & { readonly path: string; readonly weights: string; readonly state: string };

const PATH =
  /^tinker:\/\/([A-Za-z0-9-]+:train:\d+)\/(weights|sampler_weights)\/([A-Za-z0-9][A-Za-z0-9._-]{0,127})$/;

/**
 * Weights that clients saved under a name, in `<folder>/saved`; they outlive the server. `<folder>/volatile` holds what
 * is being written and what lives as long as a session; it is emptied here.
 */
export function createCheckpoints({ folder, now }: { readonly folder: string; readonly now: () => Date }) {
  const saved = join(folder, "saved");
  const volatile = join(folder, "volatile");
  const ready = rm(volatile, { recursive: true, force: true });

  return {
    /** A new empty folder that the next start removes. */
    async volatileFolder(): Promise<string> {
      await ready;
      const made = join(volatile, randomUUID());
      await mkdir(made, { recursive: true });
      return made;
    },

    /**
     * Saves what `write` puts into a folder. It appears whole or not at all.
     *
     * @throws OsmosisError `CONFLICT` when the name is taken and may not be overwritten.
     */
    async save(
      wanted: Omit<Meta, "created_at" | "size_bytes"> & { readonly overwrite: boolean },
      write: (folders: { readonly weights: string; readonly state: string }) => Promise<void>,
    ): Promise<string> {
      const { overwrite, ...meta } = wanted;
      const target = join(saved, folderName(meta.run_id), meta.kind, meta.name);
      if (!overwrite && (await isThere(target))) {
        throw new OsmosisError("CONFLICT", `${pathOf(meta)} exists.`, {
          hint: "Choose another name, or overwrite it.",
        });
      }
      const incoming = await this.volatileFolder();
      await write({ weights: join(incoming, "weights"), state: join(incoming, "state") });
      const whole: Meta = {
        ...meta,
        created_at: now().toISOString(),
        size_bytes: await sizeOf(incoming),
      };
      await writeFile(join(incoming, "meta.json"), JSON.stringify(whole));
      await mkdir(dirname(target), { recursive: true });
      const former = join(volatile, randomUUID());
      // One right after the other, since killed between them neither has the name; deleting takes its time afterwards.
      if (existsSync(target)) renameSync(target, former);
      renameSync(incoming, target);
      await rm(former, { recursive: true, force: true });
      return pathOf(meta);
    },

    /** @throws OsmosisError `NOT_FOUND` for what is no such path, or belongs to somebody else. */
    async find(path: string, owner: string): Promise<Checkpoint> {
      const match = PATH.exec(path);
      const [, run = "", kind = "", name = ""] = match ?? [];
      const found = match === null ? undefined : await read(join(saved, folderName(run), kind, name));
      if (found === undefined || found.owner !== owner) {
        throw new OsmosisError("NOT_FOUND", `There are no weights ${path}.`);
      }
      return found;
    },

    /** Newest first. */
    async list(owner: string, runId?: string): Promise<Checkpoint[]> {
      const runs = runId === undefined ? await names(saved) : [folderName(runId)];
      const found: Checkpoint[] = [];
      for (const run of runs) {
        for (const kind of ["weights", "sampler_weights"]) {
          for (const name of await names(join(saved, run, kind))) {
            const checkpoint = await read(join(saved, run, kind, name));
            if (checkpoint?.owner === owner) found.push(checkpoint);
          }
        }
      }
      return found.toSorted((a, b) => (a.created_at < b.created_at ? 1 : -1));
    },

    async remove(path: string, owner: string): Promise<void> {
      const { weights } = await this.find(path, owner);
      await rm(dirname(weights), { recursive: true, force: true });
    },
  };
}

function pathOf({ run_id, kind, name }: Pick<Meta, "run_id" | "kind" | "name">): string {
  return `tinker://${run_id}/${kind}/${name}`;
}

/** Not every file system takes a colon. */
function folderName(runId: string): string {
  return runId.replaceAll(/[^A-Za-z0-9-]/g, "_");
}

async function read(folder: string): Promise<Checkpoint | undefined> {
  const text = await readFile(join(folder, "meta.json"), "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  const meta = Meta.parse(JSON.parse(text));
  return { ...meta, path: pathOf(meta), weights: join(folder, "weights"), state: join(folder, "state") };
}

async function names(folder: string): Promise<string[]> {
  return await readdir(folder).catch(() => []);
}

async function isThere(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

async function sizeOf(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  const sizes = await Promise.all(
    files.map(async (entry) => (await stat(join(entry.parentPath, entry.name))).size),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
