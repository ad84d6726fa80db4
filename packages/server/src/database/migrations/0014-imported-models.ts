import { sql, type Kysely } from "kysely";

/** Base models that people brought over the API, beside those that lie in folders of the server. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql.raw(`alter table base_models add column imported_by text`).execute(db);
}
