import { sql, type Kysely } from "kysely";

/** Which data folder a database server's rows belong to. One row at most. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql
    .raw(
      `create table data_folder (
        is_only boolean primary key default true check (is_only),
        id text not null,
        place text not null
      )`,
    )
    .execute(db);
}
