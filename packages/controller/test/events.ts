/** The data of the events of a stream, comments left out. */
export function eventsOf(text: string): string[] {
  return text
    .split("\n\n")
    .flatMap((event) => event.split("\n").filter((line) => line.startsWith("data: ")))
    .map((line) => line.slice(6));
}
