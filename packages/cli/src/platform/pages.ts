import { UsageError } from "../output/failure.ts";
import type { Page } from "../output/result.ts";

const PAGE_SIZE = 50;

type PagedAnswer<Item> = Page & { readonly items: readonly Item[] };

/**
 * One page of a list, or with `all` every page. A server that says `has_more` without `next_offset` is asked again at
 * the count of what came so far, so that nothing is left out silently.
 *
 * @throws UsageError for `all` beside a limit.
 */
export async function collectPages<Item>(
  options: { readonly limit?: number; readonly all?: boolean },
  ask: (query: { limit: number; offset: number }) => Promise<PagedAnswer<Item>>,
): Promise<{ items: readonly Item[]; page: Page }> {
  if (options.all !== true) {
    const { items, total_count, has_more, next_offset } = await ask({
      limit: options.limit ?? PAGE_SIZE,
      offset: 0,
    });
    return { items, page: { total_count, has_more, next_offset } };
  }
  if (options.limit !== undefined) throw new UsageError("--all and --limit exclude each other.");
  const items: Item[] = [];
  for (let offset = 0; ;) {
    const answer = await ask({ limit: PAGE_SIZE, offset });
    items.push(...answer.items);
    if (!answer.has_more || answer.items.length === 0) {
      return { items, page: { total_count: items.length, has_more: false, next_offset: null } };
    }
    offset = answer.next_offset ?? items.length;
  }
}
