import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { OsmosisError } from "@osmosis/protocol";
import { createAppRouter } from "./router.tsx";
import "uplot/dist/uPlot.min.css";
import "./styles.css";

/** What the caller did wrong does not get right by asking again; a platform that restarts does. */
const mayRetry = (failures: number, error: unknown): boolean =>
  failures < 5 &&
  error instanceof OsmosisError &&
  (error.code === "NETWORK" || error.code === "PLATFORM_ERROR");

const queries = new QueryClient({ defaultOptions: { queries: { retry: mayRetry, staleTime: 500 } } });

const root = document.querySelector("#root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={createAppRouter()} />
    </QueryClientProvider>
  </StrictMode>,
);
