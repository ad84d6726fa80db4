import { config } from "zod";

/**
 * Imported before every schema is made: schemas would compile themselves with `new Function`, which the page's content
 * policy refuses.
 */
config({ jitless: true });
