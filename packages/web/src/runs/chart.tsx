import { useEffect, useRef, useState, useSyncExternalStore, type ReactElement } from "react";
import { formatNumber, formatShare } from "../format.ts";
import { Prose } from "../problem.tsx";
import { SERIES_COLOURS, aligned, type Curves } from "./curves.ts";
import type { Plot } from "./plot.ts";

/** Curves over the steps of a training run. The legend says the newest values, or those under the pointer. */
export function Chart({ curves }: { readonly curves: Curves }): ReactElement {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | undefined>(undefined);
  const newest = useRef(curves);
  const [index, setIndex] = useState<number | undefined>(undefined);
  // The file that draws is named by its content: after an update of the platform an open page asks for one that is gone.
  const [isOutdated, setOutdated] = useState(false);
  const isDark = useIsDark();
  const labels = curves.series.map(({ label }) => label).join("\n");

  useEffect(() => {
    newest.current = curves;
    plot.current?.show(curves);
  }, [curves]);

  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    let isGone = false;
    import("./plot.ts").then(
      ({ drawPlot }) => {
        if (!isGone) plot.current = drawPlot(element, newest.current, setIndex);
      },
      () => setOutdated(true),
    );
    return () => {
      isGone = true;
      plot.current?.[Symbol.dispose]();
      plot.current = undefined;
    };
  }, [labels, isDark]);

  const [steps] = aligned(curves.series);
  const step = index === undefined ? undefined : steps[index];
  const say = curves.isShare ? formatShare : formatNumber;
  return (
    <figure className="chart" aria-label={curves.title}>
      <figcaption>
        <h2>{curves.title}</h2>
        <span className="quiet">{step === undefined ? "" : `step ${step}`}</span>
      </figcaption>
      <ul className="legend">
        {curves.series.map(({ label, remark, points }, position) => {
          const shown = step === undefined ? points.at(-1) : points.find((point) => point.step === step);
          return (
            <li key={label}>
              <span className={`swatch series-${(position % SERIES_COLOURS) + 1}`} aria-hidden="true" />
              {label} <strong>{shown === undefined ? "–" : say(shown.value)}</strong>
              {remark === undefined || shown === undefined ? null : (
                <span className="quiet"> {remark(shown.step)}</span>
              )}
            </li>
          );
        })}
      </ul>
      <div ref={place} className="plot">
        {isOutdated ? (
          <button type="button" className="quiet" onClick={() => window.location.reload()}>
            The dashboard was updated: load it again
          </button>
        ) : null}
      </div>
      {curves.definition === undefined ? null : (
        <p className="definition">
          <Prose text={curves.definition} />
        </p>
      )}
      {curves.series.map(({ label, definition }) =>
        definition === undefined ? null : (
          <p key={label} className="definition">
            {curves.series.length > 1 ? `${label}: ` : ""}
            <Prose text={definition} />
          </p>
        ),
      )}
    </figure>
  );
}

const darkness = window.matchMedia("(prefers-color-scheme: dark)");

function useIsDark(): boolean {
  return useSyncExternalStore(
    (onChange) => {
      darkness.addEventListener("change", onChange);
      return () => darkness.removeEventListener("change", onChange);
    },
    () => darkness.matches,
  );
}
