export { createApp } from "./app.ts";
export { readConfig, type ServerConfig } from "./config.ts";
export { openPlatform, type Log, type Platform } from "./platform.ts";
