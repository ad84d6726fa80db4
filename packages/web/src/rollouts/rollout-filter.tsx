import { RolloutOutcome } from "@osmosis/protocol";
import { useEffect, useState, type ReactElement } from "react";
import type { RunSearch } from "../search.ts";

export type Filter = Pick<RunSearch, "phase" | "step" | "outcome">;

/** Chooses which rollouts of a run are listed. */
export function FilterBar(props: {
  readonly filter: Filter;
  /** An evaluation has neither phases nor steps. */
  readonly hasSteps: boolean;
  readonly onChange: (filter: Filter) => void;
}): ReactElement {
  const { filter, onChange } = props;
  const isFiltered = filter.phase ?? filter.step ?? filter.outcome;
  return (
    <form className="filters" onSubmit={(event) => event.preventDefault()}>
      {props.hasSteps ? (
        <>
          <label>
            Phase{" "}
            <select
              value={filter.phase ?? ""}
              onChange={({ target: { value } }) =>
                onChange({
                  ...filter,
                  phase: value === "train" || value === "validation" ? value : undefined,
                })
              }
            >
              <option value="">all</option>
              <option value="train">train</option>
              <option value="validation">validation</option>
            </select>
          </label>
          <StepInput step={filter.step} onChange={(step) => onChange({ ...filter, step })} />
        </>
      ) : null}
      <label>
        Outcome{" "}
        <select
          value={filter.outcome ?? ""}
          onChange={({ target: { value } }) =>
            onChange({ ...filter, outcome: RolloutOutcome.safeParse(value).data })
          }
        >
          <option value="">all</option>
          {RolloutOutcome.options.map((outcome) => (
            <option key={outcome}>{outcome}</option>
          ))}
        </select>
      </label>
      {isFiltered === undefined ? null : (
        <button type="button" className="plain" onClick={() => onChange({})}>
          Show all
        </button>
      )}
    </form>
  );
}

/** Keeps what is being typed to itself until it is a step. */
function StepInput(props: {
  readonly step: number | undefined;
  readonly onChange: (step: number | undefined) => void;
}): ReactElement {
  const { step } = props;
  const [typed, setTyped] = useState(String(step ?? ""));
  useEffect(() => setTyped(String(step ?? "")), [step]);
  return (
    <label>
      Step{" "}
      <input
        type="number"
        min={1}
        step={1}
        placeholder="all"
        value={typed}
        onChange={({ target: { value, valueAsNumber } }) => {
          setTyped(value);
          if (value === "" || (Number.isSafeInteger(valueAsNumber) && valueAsNumber >= 1)) {
            props.onChange(value === "" ? undefined : valueAsNumber);
          }
        }}
      />
    </label>
  );
}
