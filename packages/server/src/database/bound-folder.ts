import { hostname } from "node:os";
import { OsmosisError } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import { readOrCreateSecret } from "../keys.ts";
import type { Tables } from "./tables.ts";

/** The one data folder whose server uses this database. */
interface DataFolderTable {
  /** True: there is no second row. */
  is_only: boolean;
  /** The text of `<data folder>/platform-id`, which moves with the folder. */
  id: string;
  /** For people: the host and the path at the time. */
  place: string;
}

export interface DataFolderTables {
  data_folder: DataFolderTable;
}

/**
 * Binds the rows of a database server to the data folder that the blobs, the repositories and the key are in. A server
 * with another folder would find rows without bytes, and secrets that it cannot open; the lock of the folder sees to it
 * that there is one server with this one.
 *
 * @throws {OsmosisError} CONFLICT for a database of another folder.
 */
export async function bindFolder(db: Kysely<Tables>, folder: string): Promise<void> {
  const id = await readOrCreateSecret(folder, "platform-id");
  await db
    .insertInto("data_folder")
    .values({ is_only: true, id, place: `${folder} on ${hostname()}` })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  const bound = await db.selectFrom("data_folder").selectAll().executeTakeFirstOrThrow();
  if (bound.id === id) return;
  throw new OsmosisError(
    "CONFLICT",
    `The database in DATABASE_URL belongs to the platform whose data folder is ${bound.place}; ${folder} is another one.`,
    {
      hint:
        "A database has one server. Start it with that data folder, or give this platform a database of its own. " +
        "A data folder that was moved brings its file platform-id with it.",
    },
  );
}
