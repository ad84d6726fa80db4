/** A stylesheet imported for its effect; the bundler collects it. */
declare module "*.css";
