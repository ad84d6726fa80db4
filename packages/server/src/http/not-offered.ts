/** Commands of the official command line that this platform does not serve, with what does the same here. */
const NOT_OFFERED: readonly { readonly path: RegExp; readonly error: string; readonly hint: string }[] = [
  {
    path: /^\/api\/cli\/benchmark(s|-runs)(\/|$)/,
    error: "This platform offers no benchmarks.",
    hint: "Measure a model on a data set of the workspace with `osmosis eval submit`.",
  },
  {
    path: /^\/api\/cli\/models\/[^/]+\/(un)?deploy$/,
    error: "This platform serves checkpoints to runs only, and deploys none.",
    hint: "Name the checkpoint in [experiment].model_path, or fetch its files with this platform's own command line: osmosis model download.",
  },
  {
    path: /^\/api\/cli\/eval-runs\/[^/]+\/retry$/,
    error: "This platform does not run single rollouts of an evaluation again.",
    hint: "Submit the evaluation again: the same configuration measures the same rows.",
  },
  {
    path: /^\/api\/cli\/eval-runs\/imports(\/|$)/,
    error: "This platform takes no evaluations that were run elsewhere.",
    hint: "Push the rollout, and submit the evaluation with `osmosis eval submit`.",
  },
  {
    path: /^\/api\/cli\/quickstart$/,
    error: "The official quickstart works with repositories at GitHub only.",
    hint: "Use this platform's own: osmosis quickstart.",
  },
];

/** The body of a 404 for a route that does not exist. */
export function unknownRoute(
  method: string,
  path: string,
): { error: string; code: "NOT_FOUND"; hint?: string } {
  const known = NOT_OFFERED.find((one) => one.path.test(path));
  if (known === undefined) return { error: `There is no route ${method} ${path}.`, code: "NOT_FOUND" };
  // The official command line shows `error` and nothing beside it.
  return { error: `${known.error} ${known.hint}`, code: "NOT_FOUND", hint: known.hint };
}
