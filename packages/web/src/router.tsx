import { Outlet, createRootRoute, createRoute, createRouter } from "@tanstack/react-router";
import { DevicePage } from "./account/device-page.tsx";
import { SignInPage } from "./account/sign-in-page.tsx";
import { ComparePage } from "./compare/compare-page.tsx";
import { DatasetListPage } from "./datasets/dataset-list-page.tsx";
import { DatasetPage } from "./datasets/dataset-page.tsx";
import { CrashPage, Frame, HomePage, MissingPage, WorkspaceFrame } from "./frame.tsx";
import { ModelListPage } from "./models/model-list-page.tsx";
import { ModelPage } from "./models/model-page.tsx";
import { EvalRolloutPage, TrainingRolloutPage } from "./rollouts/rollout-page.tsx";
import { EvalRunPage } from "./runs/eval-run-page.tsx";
import { EvalListPage, OverviewPage, TrainingListPage } from "./runs/run-list-pages.tsx";
import { TrainingRunPage } from "./runs/training-run-page.tsx";
import {
  readCompareSearch,
  readDeviceSearch,
  readListSearch,
  readRunSearch,
  readSignInSearch,
} from "./search.ts";
import { SecretListPage } from "./secrets/secret-list-page.tsx";
import { WorkerListPage } from "./workers/worker-list-page.tsx";

/** The pages and their addresses. Below a workspace they are those of the links that the platform hands out. */
export function createAppRouter() {
  const root = createRootRoute({ component: Outlet, notFoundComponent: MissingPage });
  const signIn = createRoute({
    getParentRoute: () => root,
    path: "/sign-in",
    component: SignInPage,
    validateSearch: readSignInSearch,
  });
  const page = createRoute({ getParentRoute: () => root, id: "page", component: Frame });
  const home = createRoute({ getParentRoute: () => page, path: "/", component: HomePage });
  const device = createRoute({
    getParentRoute: () => page,
    path: "/device",
    component: DevicePage,
    validateSearch: readDeviceSearch,
  });
  const workers = createRoute({ getParentRoute: () => page, path: "/workers", component: WorkerListPage });
  const workspace = createRoute({
    getParentRoute: () => page,
    path: "/$workspace",
    component: WorkspaceFrame,
  });
  const within = { getParentRoute: () => workspace };
  const list = { ...within, validateSearch: readListSearch };
  const run = { ...within, validateSearch: readRunSearch };
  const compare = { ...within, validateSearch: readCompareSearch };
  // Not inside of `addChildren`, whose parameter would make their types `any`, and those of `useSearch` with them.
  const pages = [
    createRoute({ ...within, path: "/", component: OverviewPage }),
    createRoute({ ...list, path: "/training-runs", component: TrainingListPage }),
    createRoute({ ...run, path: "/training-runs/$run", component: TrainingRunPage }),
    createRoute({
      ...within,
      path: "/training-runs/$run/rollouts/$rollout",
      component: TrainingRolloutPage,
    }),
    createRoute({ ...compare, path: "/compare", component: ComparePage }),
    createRoute({ ...list, path: "/eval-runs", component: EvalListPage }),
    createRoute({ ...run, path: "/eval-runs/$run", component: EvalRunPage }),
    createRoute({ ...within, path: "/eval-runs/$run/rollouts/$rollout", component: EvalRolloutPage }),
    createRoute({ ...list, path: "/datasets", component: DatasetListPage }),
    createRoute({ ...within, path: "/datasets/$dataset", component: DatasetPage }),
    createRoute({ ...list, path: "/models", component: ModelListPage }),
    createRoute({ ...within, path: "/models/$model", component: ModelPage }),
    createRoute({ ...within, path: "/secrets", component: SecretListPage }),
  ] as const;
  return createRouter({
    scrollRestoration: true,
    defaultErrorComponent: CrashPage,
    routeTree: root.addChildren([
      signIn,
      page.addChildren([home, device, workers, workspace.addChildren(pages)]),
    ]),
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof createAppRouter>;
  }
}
