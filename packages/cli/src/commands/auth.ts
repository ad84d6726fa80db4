import type { Command } from "commander";
import type { Run } from "./run-command.ts";
import { examples } from "./options.ts";

export function addAuth(program: Command, run: Run): void {
  const auth = program.command("auth").description("sign in and out of a platform");

  auth
    .command("login")
    .description("sign in with the browser, with a token, or with the secret of a platform on this machine")
    .option("--token <token>", "save this token instead of asking the browser; - reads it from stdin")
    .option("--local", "sign in as the owner of the platform that runs on this machine, without a browser")
    .option("--data <folder>", "the data folder of that platform, with --local")
    .addHelpText(
      "after",
      examples(
        "osmosis auth login",
        "osmosis auth login --local",
        "osmosis auth login --platform https://osmosis.example.com",
        "echo $TOKEN | osmosis auth login --token -",
      ),
    )
    .action(
      run(async (context, options: { token?: string; local?: boolean; data?: string }) =>
        (await import("../auth/login.ts")).login(context, options),
      ),
    );

  auth
    .command("logout")
    .description("forget the login and revoke its token")
    .option("-y, --yes", "do not ask")
    .addHelpText("after", examples("osmosis auth logout --yes"))
    .action(
      run(async (context, options: { yes?: boolean }) =>
        (await import("../auth/logout.ts")).logout(context, options),
      ),
    );

  auth
    .command("whoami")
    .description("show who is signed in, where, and for which workspace")
    .addHelpText("after", examples("osmosis auth whoami", "osmosis auth whoami --json"))
    .action(run(async (context) => (await import("../auth/whoami.ts")).whoami(context)));

  auth
    .command("git-credential <operation>", { hidden: true })
    .description("answer Git's question for a password with the login's token")
    .action(
      run(async (context, operation: string) =>
        (await import("../auth/git-credential.ts")).gitCredential(context, operation),
      ),
    );
}
