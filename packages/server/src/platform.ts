import { join } from "node:path";
import { errorMessage, type OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import type { BlobStore } from "./blobs/blob-store.ts";
import { openFolderStore } from "./blobs/folder-store.ts";
import { createSignedUrls, type SignedUrls } from "./blobs/signed-urls.ts";
import type { ServerConfig } from "./config.ts";
import { bindFolder } from "./database/bound-folder.ts";
import { prepareDataFolder, removeLeftovers } from "./database/data-folder.ts";
import { lockFolder } from "./database/folder-lock.ts";
import { openDatabase, type DatabaseLocation } from "./database/open.ts";
import type { Tables } from "./database/tables.ts";
import { createAccounts, type Accounts, type User } from "./features/accounts/service.ts";
import { processDatasets } from "./features/datasets/processing.ts";
import { createDatasets, type Datasets } from "./features/datasets/service.ts";
import { deleteUnusedBytes } from "./features/datasets/sweep.ts";
import { registerBaseModels } from "./features/models/base-models.ts";
import { createModels, type Models } from "./features/models/service.ts";
import { deleteUnusedModelFiles } from "./features/models/sweep.ts";
import { deleteUnusedRunBytes } from "./features/runs/sweep.ts";
import { createSecrets, type Secrets } from "./features/secrets/service.ts";
import { createTinker, type Tinker } from "./features/tinker/service.ts";
import { sweepLeases } from "./features/worker-api/sweeper.ts";
import { createWorkspaces, type Workspaces } from "./features/workspaces/service.ts";
import { createRepositories, type Repositories } from "./git/repositories.ts";
import { createGit, type Git } from "./git/run-git.ts";
import { everyHour } from "./hourly.ts";
import { openKeys, readOrCreateSecret, type Keys } from "./keys.ts";
import { createBell, type Bell } from "./queue/bell.ts";
import { QUEUES } from "./queue/job-types.ts";
import { openQueue, type Queue } from "./queue/queue.ts";
import { createSeed } from "./seed/seed-folder.ts";

/** One line of the server's log. No secrets in it. */
export type Log = (entry: {
  level: "info" | "warning" | "error";
  message: string;
  [detail: string]: unknown;
}) => void;

/** The parts that every feature builds on. A feature takes it whole or picks what it needs. */
export interface Platform extends AsyncDisposable {
  readonly config: ServerConfig;
  /** The public address, without a trailing slash: what links and signed URLs begin with. */
  readonly url: string;
  readonly now: () => Date;
  readonly log: Log;
  readonly db: Kysely<Tables>;
  readonly queue: Queue;
  readonly blobs: BlobStore;
  readonly blobUrls: SignedUrls;
  readonly keys: Keys;
  /** Bearer of the owner's own programs on this machine: the text of `<dataFolder>/local-secret`. */
  readonly localSecret: string;
  /** Bearer of workers: the text of `<dataFolder>/worker-secret`. */
  readonly workerSecret: string;
  readonly accounts: Accounts;
  readonly git: Git;
  /** Commits and files of the workspaces' repositories. */
  readonly repositories: Repositories;
  readonly workspaces: Workspaces;
  readonly secrets: Secrets;
  readonly datasets: Datasets;
  readonly models: Models;
  /** This server as a trainer for other programs. */
  readonly tinker: Tinker;
  /** Rung when a run was queued, and when something happened to shares of one. */
  readonly runBell: Bell;
  /** Resolves when the server can only be started again. */
  readonly broken: Promise<OsmosisError>;
  /** Whoever started the server. */
  readonly owner: User;
}

/**
 * Opens everything that a server holds, in the order of need; closing it undoes that in reverse.
 *
 * @throws {OsmosisError} STORAGE, CONFLICT or VALIDATION; see the parts.
 */
export async function openPlatform(parts: {
  config: ServerConfig;
  url: string;
  now: () => Date;
  log: Log;
  /** By default what `config` says. */
  database?: DatabaseLocation;
}): Promise<Platform> {
  const { config, url, now, log } = parts;
  await using opened = new AsyncDisposableStack();
  const location = parts.database ?? databaseLocation(config);
  if (location.kind !== "folder") {
    // The embedded database does both itself.
    await prepareDataFolder(config.dataFolder);
    opened.use(await lockFolder(config.dataFolder));
  }
  const database = opened.use(await openDatabase(location));
  if (location.kind === "url") await bindFolder(database.db, config.dataFolder);
  await removeLeftovers(config.dataFolder);
  const { db } = database;
  const keys = await openKeys(config.dataFolder, config.masterKey);
  const localSecret = await readOrCreateSecret(config.dataFolder, "local-secret");
  const workerSecret = await readOrCreateSecret(config.dataFolder, "worker-secret");
  const queue = opened.use(
    await openQueue({
      database,
      queues: QUEUES,
      onError: (error) => log({ level: "error", message: `The queue failed: ${error.message}` }),
    }),
  );
  const blobs = openFolderStore(join(config.dataFolder, "blobs"));
  const blobUrls = createSignedUrls({ url, key: keys.derive("blob-urls"), now });
  const accounts = createAccounts({ db, now, url, keys });
  const owner = await accounts.ensureOwner();
  const git = createGit(config.toolEnvironment);
  const repositories = createRepositories({ folder: join(config.dataFolder, "git"), git, now });
  const seed = createSeed({ ...config, cacheFolder: join(config.dataFolder, "cache"), log });
  const workspaces = createWorkspaces({ db, repositories, now, seed });
  for (const { repository, error } of await workspaces.syncAll()) {
    log({
      level: "error",
      message: `The workspace of ${repository} cannot be synced: ${errorMessage(error)}`,
    });
  }
  const secrets = createSecrets({ db, key: keys.derive("secrets"), now });
  const datasetBell = createBell();
  const datasets = createDatasets({ db, queue, blobs, blobUrls, now, url, bell: datasetBell });
  const isAlone = database.kind === "pglite";
  opened.use(await processDatasets({ db, queue, blobs, now, log, bell: datasetBell, isAlone }));
  opened.use(
    everyHour("Deleting replaced data sets", {
      log,
      work: (signal) => deleteUnusedBytes({ db, blobs, now }, signal),
    }),
  );
  const models = createModels({ db, blobs, blobUrls, url });
  await registerBaseModels({
    db,
    blobs,
    now,
    log,
    shipped: config.modelsFolder,
    own: join(config.dataFolder, "models"),
  });
  opened.use(
    everyHour("Deleting unused files of models and runs", {
      log,
      async work(signal) {
        await deleteUnusedRunBytes({ db, blobs, now }, signal);
        await deleteUnusedModelFiles({ db, blobs, now }, signal);
      },
    }),
  );
  const tinker = opened.use(createTinker({ config, now, log, db, blobs }));
  const runBell = createBell();
  opened.use(await sweepLeases({ config, db, queue, blobs, now, log, bell: runBell }));
  const resources = opened.move();
  return {
    config,
    url,
    now,
    log,
    db,
    queue,
    blobs,
    blobUrls,
    keys,
    localSecret,
    workerSecret,
    accounts,
    git,
    repositories,
    workspaces,
    secrets,
    datasets,
    models,
    tinker,
    runBell,
    broken: database.broken,
    owner,
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  };
}

function databaseLocation(config: ServerConfig): DatabaseLocation {
  return config.databaseUrl === undefined
    ? { kind: "folder", folder: config.dataFolder }
    : { kind: "url", url: config.databaseUrl };
}
