import { existsSync } from "node:fs";
import { chromium, type Browser } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Where this machine has a Chromium; `CHROMIUM` names another one. */
export const chromiumPath = [process.env["CHROMIUM"], ...PLACES].find(
  (path) => path !== undefined && existsSync(path),
);

/** What a suite is called where it cannot run: the name says why it is skipped. */
export function suiteName(name: string): string {
  return chromiumPath === undefined ? `${name} (skipped: no Chromium; name one in CHROMIUM)` : name;
}

export async function launchBrowser(): Promise<Browser> {
  if (chromiumPath === undefined) throw new Error("there is no Chromium");
  return await chromium.launch({
    executablePath: chromiumPath,
    args: ["--no-sandbox", "--disable-quic", "--disable-background-networking"],
  });
}
