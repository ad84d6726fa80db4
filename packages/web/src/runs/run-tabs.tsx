import { useNavigate, useSearch } from "@tanstack/react-router";
import { Tabs } from "radix-ui";
import type { ReactElement } from "react";
import type { RunSearch } from "../search.ts";

type Tab = NonNullable<RunSearch["tab"]> | "overview";

const NAMES: Readonly<Record<Tab, string>> = {
  overview: "Overview",
  rollouts: "Rollouts",
  checkpoints: "Checkpoints",
  logs: "Logs",
  configuration: "Configuration",
};

/** The parts of a run, one at a time; which one is part of the address. Only the one that is shown asks the platform. */
export function RunTabs(props: {
  readonly from: "/page/$workspace/training-runs/$run" | "/page/$workspace/eval-runs/$run";
  readonly parts: Readonly<Partial<Record<Tab, () => ReactElement>>>;
}): ReactElement {
  const { tab } = useSearch({ from: props.from });
  const navigate = useNavigate();
  const tabs = (Object.keys(NAMES) as Tab[]).filter((name) => props.parts[name] !== undefined);
  const shown: Tab = tabs.find((name) => name === tab) ?? "overview";
  return (
    <Tabs.Root
      value={shown}
      onValueChange={(value) => {
        const next = tabs.find((name) => name === value);
        void navigate({ to: ".", search: next === undefined || next === "overview" ? {} : { tab: next } });
      }}
    >
      <Tabs.List className="tabs" aria-label="Parts of the run">
        {tabs.map((name) => (
          <Tabs.Trigger key={name} value={name}>
            {NAMES[name]}
          </Tabs.Trigger>
        ))}
      </Tabs.List>
      <Tabs.Content value={shown} tabIndex={-1}>
        {props.parts[shown]?.()}
      </Tabs.Content>
    </Tabs.Root>
  );
}
