import { sql, type ColumnType, type Generated, type RawBuilder } from "kysely";

/** A timestamp column: read as a `Date`, written as a `Date`. */
export type Timestamp = ColumnType<Date, Date, Date>;

/** A timestamp column that the database fills with its own clock when a row is inserted. */
export type CreatedAt = Generated<Date>;

/** A `jsonb` column: read as parsed JSON of shape `T`, written with {@link jsonb}. */
export type Json<T> = ColumnType<T, RawBuilder<T>, RawBuilder<T>>;

/**
 * A value for a `jsonb` column, the same on both databases: the `pg` driver would turn an array into a Postgres array.
 * A NUL character and half of a surrogate pair, which Postgres cannot store, become U+FFFD.
 */
export function jsonb<T>(value: T): RawBuilder<T> {
  const text = JSON.stringify(value).replaceAll(
    /(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g,
    "$1\\ufffd",
  );
  return sql<T>`${text}::jsonb`;
}

/** A text as a column can hold it: NUL, which Postgres cannot store, becomes U+FFFD. */
export function storableText(text: string): string {
  return text.replaceAll("\0", "\uFFFD");
}
