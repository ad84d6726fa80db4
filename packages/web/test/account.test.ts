import { randomUUID } from "node:crypto";
import { authRoutes, createClient } from "@osmosis/protocol";
import { describe, expect, test } from "vitest";
import { chromiumPath, suiteName } from "./browser.ts";
import { withStage, type Stage } from "./stage.ts";

describe.skipIf(chromiumPath === undefined)(
  suiteName("who may see the dashboard"),
  { timeout: 60_000 },
  () => {
    let stage: Stage;
    withStage((opened) => (stage = opened));

    const link = () => stage.server.platform.accounts.createSignInLink(stage.server.platform.owner.email);

    test("a sign-in link signs one browser in, once", async () => {
      const url = await link();
      const first = await stage.open({ profile: "signed-out", path: url.slice(stage.server.url.length) });
      await first.getByRole("heading", { name: stage.workspace.name }).waitFor();
      expect(new URL(first.url()).pathname).toBe(`/${stage.workspace.name}`);
      expect(first.url()).not.toContain("token");

      const second = await stage.open({ profile: "signed-out", path: url.slice(stage.server.url.length) });
      await second.getByText("That link cannot be used any more").waitFor();
      await second.getByText("osmosis auth login --local", { exact: true }).waitFor();
      await first.reload();
      await first.getByRole("heading", { name: stage.workspace.name }).waitFor();
      await first.context().close();
      await second.context().close();
    });

    test("a browser that nobody has signed in returns to the page that it wanted", async () => {
      const wanted = `/${stage.workspace.name}/datasets/rows`;
      const page = await stage.open({ profile: "signed-out", path: wanted });
      await page.getByRole("heading", { name: "Sign in", exact: true }).waitFor();

      // The link is opened in another tab, as a click in a terminal does.
      const other = await page.context().newPage();
      await other.goto(await link());
      await other.getByRole("heading", { name: "rows", exact: true }).waitFor();
      expect(new URL(other.url()).pathname).toBe(wanted);
      // The first tab goes on by itself.
      await page.getByRole("heading", { name: "rows", exact: true }).waitFor();
      expect(new URL(page.url()).pathname).toBe(wanted);
      // The wish is fulfilled: the next visit begins at the beginning.
      await other.goto(stage.server.url);
      await other.getByRole("heading", { name: stage.workspace.name }).waitFor();
      await page.context().close();
    });

    test("a wish that leads to another site is not followed", async () => {
      const page = await stage.open({ profile: "signed-out", path: "/sign-in?to=%2F%2Fexample.com%2F" });
      await page.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
      await page.goto(await link());
      await page.getByRole("heading", { name: stage.workspace.name }).waitFor();
      await page.context().close();
    });

    test("who signs out is led to the sign-in page, in every tab, and back is no way in", async () => {
      const page = await stage.open({ profile: "own" });
      const other = await page.context().newPage();
      await other.goto(`${stage.server.url}/${stage.workspace.name}/training-runs`);
      await other.getByRole("heading", { name: "Training runs" }).waitFor();
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
      await other.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
      await page.goBack();
      await page.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
      await page.context().close();
    });

    test("a workspace of others, and an address that does not exist, are nothing here", async () => {
      const { db } = stage.server.platform;
      const foreign = `foreign-${randomUUID().slice(0, 8)}`;
      await db
        .insertInto("workspaces")
        .values({
          id: randomUUID(),
          name: foreign,
          repository: `${foreign}/workspace`,
          default_branch: "main",
        })
        .execute();
      const page = await stage.open({ path: `/${foreign}` });
      for (const path of [
        `/${foreign}`,
        `/${foreign}/training-runs/x`,
        "/nowhere",
        `/${stage.workspace.name}/what/ever`,
      ]) {
        await page.goto(stage.server.url + path);
        await page.getByRole("heading", { name: "Nothing here" }).waitFor();
      }
      await page.getByRole("link", { name: "Go to your workspace" }).click();
      await page.getByRole("heading", { name: stage.workspace.name }).waitFor();

      await page.goto(`${stage.server.url}/${stage.workspace.name}/training-runs/no-such-run`);
      await page.getByText("There is no training run no-such-run").waitFor();
      await page.close();
    });

    describe("a command line that wants to sign in", () => {
      const anonymous = () => createClient({ baseUrl: stage.server.url, fetch });
      const begin = () =>
        anonymous().call(authRoutes.authorizeDevice, { body: { deviceName: "<b>laptop</b>" } });

      test("is let in after its code was compared and approved", async () => {
        const grant = await begin();
        const address = grant.verification_uri_complete ?? "";
        const page = await stage.open({
          profile: "signed-out",
          path: address.slice(stage.server.url.length),
        });
        await page.getByRole("heading", { name: "Sign in", exact: true }).waitFor();
        await page.goto(await link());
        await page.getByText("<b>laptop</b>").waitFor();
        await page.getByText(grant.user_code, { exact: true }).waitFor();
        await page.getByRole("button", { name: "Approve" }).click();
        await page.getByText("The command line is signed in").waitFor();
        const body = { device_code: grant.device_code };
        expect(await anonymous().call(authRoutes.pollDevice, { body })).toMatchObject({
          user: { email: stage.server.platform.owner.email },
        });
        await page.context().close();
      });

      test("may type its code instead, and can be refused", async () => {
        const grant = await begin();
        const page = await stage.open({ path: "/device" });
        await page.getByLabel("Code that the command line shows").fill(" wrong ");
        await page.keyboard.press("Enter");
        await page.getByText("This code is not known").waitFor();
        await page.getByRole("button", { name: "Enter another code" }).click();
        await page
          .getByLabel("Code that the command line shows")
          .fill(grant.user_code.toLowerCase().replace("-", ""));
        await page.keyboard.press("Enter");
        await page.getByText(grant.user_code, { exact: true }).waitFor();
        await page.getByRole("button", { name: "Refuse" }).click();
        await page.getByText("Refused.").waitFor();
        const body = { device_code: grant.device_code };
        await expect(anonymous().call(authRoutes.pollDevice, { body })).rejects.toThrow("access_denied");
        await page.close();
      });
    });
  },
);
