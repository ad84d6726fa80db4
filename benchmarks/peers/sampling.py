"""Batched sampling with `transformers.generate` for `peer-sampling.ts`.

The peer's best reasonable settings: inference mode, PyTorch's own fused attention (sdpa), key-value cache, whole batch
at once, prompts padded on the left, no filter of the distribution (top_k 0, top_p 1), full length for every row.
"""

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from rounds import read_workload, serve_rounds

work = read_workload()
torch.set_num_threads(work["threads"])
torch.manual_seed(1)

model = AutoModelForCausalLM.from_pretrained(work["folder"], dtype=torch.float32, attn_implementation="sdpa").eval()
new_tokens = work["newTokens"]
model.generation_config = GenerationConfig(
    do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=new_tokens, use_cache=True, pad_token_id=0,
)
batches = iter(work["batches"])


@torch.inference_mode()
def sample():
    prompts = next(batches)
    width = max(map(len, prompts))
    tokens = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    answers = model.generate(input_ids=tokens, attention_mask=mask)[:, width:].tolist()
    return {"tokens": sum(map(len, answers))}


serve_rounds(["torch", "transformers"], sample)
