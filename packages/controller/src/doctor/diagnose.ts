import type { Diagnosis, Finding } from "@osmosis/protocol";
import { ADVICE } from "./advice.ts";
import { ALARMS } from "./alarms.ts";
import type { Rule, RunHistory } from "./run-history.ts";

/**
 * What is wrong with a run, or could be better. Liveness first: while there is an alarm no advice is given, because
 * what a sick run measures says little about its settings. A run that waits for its worker has nothing to tune.
 */
export function diagnose(history: RunHistory): Pick<Diagnosis, "findings" | "rules"> {
  const alarms = ask(ALARMS, "alarm", history);
  const tunes = alarms.length === 0 && history.steps.length > 0;
  return {
    findings: tunes ? ask(ADVICE, "advice", history) : alarms,
    rules: [...ALARMS, ...(tunes ? ADVICE : [])].map(({ name }) => name),
  };
}

function ask(rules: readonly Rule[], severity: Finding["severity"], history: RunHistory): Finding[] {
  return rules.flatMap(({ name, check }) => {
    const found = check(history);
    return found === undefined ? [] : [{ severity, rule: name, ...found }];
  });
}
