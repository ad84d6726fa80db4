import { expect, test } from "vitest";
import { readConfig } from "./config.ts";

const read = (environment: Record<string, string>) => readConfig({ dataFolder: "data" }, environment);

test("a variable that is empty counts as absent", () => {
  expect(read({ DATABASE_URL: "", OSMOSIS_PUBLIC_URL: "", OSMOSIS_MASTER_KEY: "" })).toMatchObject({
    databaseUrl: undefined,
    publicUrl: undefined,
    masterKey: undefined,
  });
});

test("a variable that cannot be is named, without its value", () => {
  for (const [name, value] of [
    ["DATABASE_URL", "mysql://root:hush@host/x"],
    ["OSMOSIS_PUBLIC_URL", "javascript:hush"],
    ["OSMOSIS_MASTER_KEY", "hush!"],
    ["OSMOSIS_LEASE_SECONDS", "hush"],
  ] as const) {
    const text = (() => {
      try {
        read({ [name]: value });
        return "";
      } catch (error) {
        return String(error);
      }
    })();
    expect(text).toContain(`${name} must be`);
    expect(text).not.toContain("hush");
  }
});

test("a Postgres URL is taken as it is, also with a socket's folder", () => {
  for (const url of ["postgres://u:p@h:5432/d?sslmode=require", "postgresql:///d?host=/tmp/socket"]) {
    expect(read({ DATABASE_URL: url }).databaseUrl).toBe(url);
  }
});
