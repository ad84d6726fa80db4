/** A host of models behind the OpenAI chat API. */
export type Provider = {
  readonly baseUrl: string;
  /** Secret or variable of the run that holds the key. */
  readonly apiKeyName: string;
  /** Variable of the run that replaces the base URL. */
  readonly baseUrlName: string;
};

const PROVIDERS: Readonly<Record<string, { readonly baseUrl: string; readonly prefix: string }>> = {
  openai: { baseUrl: "https://api.openai.com/v1", prefix: "OPENAI" },
  anthropic: { baseUrl: "https://api.anthropic.com/v1", prefix: "ANTHROPIC" },
  gemini: { baseUrl: "https://generativelanguage.googleapis.com/v1beta/openai", prefix: "GEMINI" },
  xai: { baseUrl: "https://api.x.ai/v1", prefix: "XAI" },
  openrouter: { baseUrl: "https://openrouter.ai/api/v1", prefix: "OPENROUTER" },
  groq: { baseUrl: "https://api.groq.com/openai/v1", prefix: "GROQ" },
  together_ai: { baseUrl: "https://api.together.xyz/v1", prefix: "TOGETHERAI" },
  fireworks_ai: { baseUrl: "https://api.fireworks.ai/inference/v1", prefix: "FIREWORKS" },
  deepseek: { baseUrl: "https://api.deepseek.com/v1", prefix: "DEEPSEEK" },
  mistral: { baseUrl: "https://api.mistral.ai/v1", prefix: "MISTRAL" },
  cerebras: { baseUrl: "https://api.cerebras.ai/v1", prefix: "CEREBRAS" },
};

export const PROVIDER_NAMES = Object.keys(PROVIDERS);

/** The provider and the model that `openai/gpt-5-mini` names, or undefined when its prefix names no provider. */
export function providerOf(modelPath: string): { provider: Provider; model: string } | undefined {
  const slash = modelPath.indexOf("/");
  const name = modelPath.slice(0, slash);
  const model = modelPath.slice(slash + 1);
  const found = Object.hasOwn(PROVIDERS, name) ? PROVIDERS[name] : undefined;
  if (found === undefined || model === "") return undefined;
  const { baseUrl, prefix } = found;
  return { provider: { baseUrl, apiKeyName: `${prefix}_API_KEY`, baseUrlName: `${prefix}_BASE_URL` }, model };
}
