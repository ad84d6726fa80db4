/** Files of a model, as far as their names tell what they are. */
type Files = readonly { readonly name: string }[];

/**
 * Whether weights are among the files. A base model may be here without them, with tokenizer and chat template alone, and
 * so may a checkpoint, as a reference to weights at a trainer.
 */
export function holdWeights(files: Files): boolean {
  return files.some(({ name }) => name.endsWith(".safetensors"));
}

/** Whether an engine can open the model: without weights beneath it an adapter is of no use here. */
export function weightsAreHere(model: {
  readonly base_files: Files;
  readonly adapter_files: Files;
}): boolean {
  const { base_files: base, adapter_files: adapter } = model;
  return holdWeights(base) && (adapter.length === 0 || holdWeights(adapter));
}
