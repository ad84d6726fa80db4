import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/** `vite` alone serves the sources and hands API calls to a platform on its default port. */
export default defineConfig({
  plugins: [react()],
  build: { outDir: "dist", emptyOutDir: true, target: "es2023" },
  server: { proxy: { "/api": "http://127.0.0.1:7400", "/sign-in": "http://127.0.0.1:7400" } },
});
