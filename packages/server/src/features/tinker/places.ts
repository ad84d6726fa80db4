import { OsmosisError } from "@osmosis/protocol";
import type { Platform } from "../../platform.ts";

/** All places for models are taken. */
export class NoPlace extends Error {
  override readonly name = "NoPlace";
  /** How many models each user has open, by id. */
  readonly holders: ReadonlyMap<string, number>;
  constructor(holders: ReadonlyMap<string, number>) {
    super("all places for models are taken");
    this.holders = holders;
  }
}

/** Whoever finds no place is told whom to ask for one. */
export async function placesTaken(
  db: Platform["db"],
  asking: string,
  { holders }: NoPlace,
): Promise<OsmosisError> {
  const users = await db
    .selectFrom("users")
    .select(["id", "name"])
    .where("id", "in", [...holders.keys()])
    .orderBy("name")
    .execute();
  const own = holders.get(asking) ?? 0;
  const others = users.filter(({ id }) => id !== asking);
  const held = [
    ...(own === 0 ? [] : [`you ${own}`]),
    ...others.map(({ id, name }) => `${name} ${holders.get(id) ?? 0}`),
  ];
  const total = holders.values().reduce((sum, count) => sum + count, 0);
  return new OsmosisError(
    "VALIDATION",
    `This server trains ${total} models at once, and all places are taken: ${held.join(", ")}.`,
    {
      hint:
        own === 0
          ? "Ask one of them to unload a model; a session that is silent for two minutes loses its models."
          : "Unload one, or end its session.",
    },
  );
}
