import {
  Outlet,
  createRootRoute,
  createRoute,
  createRouter,
  notFound,
  type AnyRouter,
} from "@tanstack/react-router";
import { DevicePage } from "./account/device-page.tsx";
import { SignInPage } from "./account/sign-in-page.tsx";
import { Frame, HomePage, MissingPage, WorkspaceFrame } from "./frame.tsx";
import { EvalRunPage } from "./runs/eval-run-page.tsx";
import { RolloutPage } from "./rollouts/rollout-page.tsx";
import { RunListPage } from "./runs/run-list-page.tsx";
import { TrainingRunPage } from "./runs/training-run-page.tsx";

/** The pages and their addresses. `/<workspace>/…` mirrors the links that the platform hands out. */
export function createAppRouter(): AnyRouter {
  const root = createRootRoute({ component: Outlet, notFoundComponent: MissingPage });
  const page = createRoute({ getParentRoute: () => root, id: "page", component: Frame });
  const signIn = createRoute({
    getParentRoute: () => root,
    path: "/sign-in",
    component: SignInPage,
    validateSearch: (search: Record<string, unknown>) => ({ error: textOf(search["error"]) }),
  });
  const home = createRoute({ getParentRoute: () => page, path: "/", component: HomePage });
  const device = createRoute({
    getParentRoute: () => page,
    path: "/device",
    component: DevicePage,
    validateSearch: (search: Record<string, unknown>) => ({
      user_code: textOf(search["user_code"] ?? search["code"]),
    }),
  });
  const workspace = createRoute({
    getParentRoute: () => page,
    path: "/$workspace",
    component: WorkspaceFrame,
  });
  const runs = createRoute({ getParentRoute: () => workspace, path: "/", component: RunListPage });
  const training = createRoute({
    getParentRoute: () => workspace,
    path: "/training-runs/$run",
    component: TrainingRunPage,
  });
  const evaluation = createRoute({
    getParentRoute: () => workspace,
    path: "/eval-runs/$run",
    component: EvalRunPage,
  });
  const rollout = createRoute({
    getParentRoute: () => workspace,
    path: "/$kind/$run/rollouts/$rollout",
    component: RolloutPage,
    beforeLoad: ({ params }) => {
      if (params.kind !== "training-runs" && params.kind !== "eval-runs") notFound({ throw: true });
    },
  });
  const list = createRoute({
    getParentRoute: () => workspace,
    path: "/$kind",
    component: RunListPage,
    beforeLoad: ({ params }) => {
      if (params.kind !== "training-runs" && params.kind !== "eval-runs") notFound({ throw: true });
    },
  });
  return createRouter({
    routeTree: root.addChildren([
      signIn,
      page.addChildren([home, device, workspace.addChildren([runs, training, evaluation, rollout, list])]),
    ]),
  });
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}
