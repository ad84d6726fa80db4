/**
 * Keeps onnxruntime to itself: its builds record every session, with an id of the machine, and send that to their maker
 * unless this variable is there when the library loads. The library reads the environment of the process, of which a
 * worker thread has only a copy, so the main thread calls this before it starts one.
 */
export function refuseTelemetry(): void {
  process.env["ORT_DISABLE_TELEMETRY"] = "1";
}
