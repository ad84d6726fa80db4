import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const PLATFORM = "http://127.0.0.1:7400";

/**
 * Libraries change seldom, so they are files of their own: after an update of the dashboard browsers load only what is
 * new. `vite` alone serves the sources and hands API calls to a platform on its default port.
 */
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2023",
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "react", test: /node_modules[\\/](react|react-dom|scheduler)[\\/]/ },
            { name: "tanstack", test: /node_modules[\\/]@tanstack[\\/]/ },
            { name: "zod", test: /node_modules[\\/]zod[\\/]/ },
            { name: "radix", test: /node_modules[\\/](radix-ui|@radix-ui)[\\/]/ },
          ],
        },
      },
    },
  },
  server: {
    proxy: {
      "/api": PLATFORM,
      // The page of that name is the dashboard's own; a link with a token is the platform's.
      "/sign-in": {
        target: PLATFORM,
        bypass: ({ url }) => (url?.includes("token=") === true ? undefined : url),
      },
    },
  },
});
