/**
 * What a command answers, once for three readers: rich text for a person at a terminal, plain lines for a pipe, one
 * JSON document for a program. A command returns a result; it never writes to stdout itself.
 */
export type Result = ListResult | SectionsResult | DetailResult | OperationResult | SilentResult;

export type Page = {
  readonly total_count: number;
  readonly has_more: boolean;
  readonly next_offset: number | null;
};

/** Cells of a list, headers first. Columns named in `numeric` are set flush right. */
export type Table = {
  readonly headers: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly numeric?: readonly string[];
};

/** Keys beside the reserved ones of an envelope. */
export type Extras = Readonly<Record<string, unknown>>;

export type NextStep = { readonly command: string; readonly description: string };

export type ListResult = {
  readonly kind: "list";
  readonly items: readonly unknown[];
  readonly page: Page;
  readonly table: Table;
  /** Said in place of an empty table. */
  readonly empty: string;
  readonly extras?: Extras;
};

export type SectionsResult = {
  readonly kind: "sections";
  readonly sections: readonly (Omit<ListResult, "kind" | "extras"> & {
    readonly key: string;
    readonly title: string;
  })[];
  readonly extras?: Extras;
};

export type Field = readonly [label: string, value: string];

export type DetailResult = {
  readonly kind: "detail";
  readonly data: unknown;
  readonly title?: string;
  readonly fields: readonly Field[];
  readonly tables?: readonly { readonly title: string; readonly table: Table }[];
  readonly nextSteps?: readonly NextStep[];
  readonly extras?: Extras;
};

export type OperationResult = {
  readonly kind: "operation";
  /** `dataset.upload`. */
  readonly operation: string;
  readonly status: "success" | "partial" | "cancelled" | "noop";
  readonly message: string;
  readonly fields?: readonly Field[];
  readonly tables?: readonly { readonly title: string; readonly table: Table }[];
  readonly resource?: unknown;
  readonly nextSteps?: readonly NextStep[];
  readonly extras?: Extras;
};

/** Everything was said while the command ran: followed logs, a server that has ended. */
export type SilentResult = { readonly kind: "silent" };

/** The page of a list that is complete. */
export function wholePage(count: number): Page {
  return { total_count: count, has_more: false, next_offset: null };
}
