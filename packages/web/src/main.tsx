import "./validation.ts";
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { OsmosisError } from "@osmosis/protocol";
import { isOutage } from "./outage.ts";
import { WORKSPACES_KEY } from "./platform.ts";
import { createAppRouter } from "./router.tsx";
import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/data.css";
import "./styles/conversation.css";

const queries: QueryClient = new QueryClient({
  queryCache: new QueryCache({
    onError: (error, query) => {
      // A session that ended in the middle of the work shows in whichever question comes first.
      if (
        error instanceof OsmosisError &&
        error.code === "AUTH_REQUIRED" &&
        query.queryKey[0] !== WORKSPACES_KEY[0]
      ) {
        void queries.invalidateQueries({ queryKey: WORKSPACES_KEY });
      }
    },
  }),
  defaultOptions: {
    queries: {
      // A platform that restarts answers again in seconds; nothing else gets right by asking again.
      retry: (_failures, error) => isOutage(error),
      retryDelay: (failures) => Math.min(500 * 2 ** failures, 2000),
      staleTime: 500,
      // The platform is often on this very machine, which may be offline.
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

const root = document.querySelector("#root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={createAppRouter()} />
    </QueryClientProvider>
  </StrictMode>,
);
