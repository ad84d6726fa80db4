import { errorMessage } from "@osmosis/protocol";
import type { Kysely } from "kysely";
import { Migrator } from "kysely/migration";
import { MIGRATIONS } from "./migrations/index.ts";
import type { Tables } from "./tables.ts";

/**
 * Applies every migration that the database has not seen, in one transaction and under a lock, so of several servers
 * that start together one does the work and the others wait.
 */
export async function migrate(db: Kysely<Tables>): Promise<void> {
  const migrator = new Migrator({
    db,
    provider: {
      async getMigrations() {
        return { ...MIGRATIONS };
      },
    },
    migrationTableName: "schema_migrations",
    migrationLockTableName: "schema_migrations_lock",
    // Branches that each add a migration may be merged in any order.
    allowUnorderedMigrations: true,
  });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) throw new Error(`A migration failed: ${errorMessage(error)}`, { cause: error });
}
