"""One training step in PyTorch for `peer-training-step.ts`.

The peer's best reasonable settings: PyTorch's own fused attention (sdpa), no key-value cache, the whole batch at once
(prompts padded on the left, answers on the right), the head applied to the answers only, a fused log softmax, a fused
AdamW. With `compile` in the workload the model goes through torch.compile first.
"""

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from rounds import read_workload, serve_rounds

work = read_workload()
torch.set_num_threads(work["threads"])

model = AutoModelForCausalLM.from_pretrained(work["folder"], dtype=torch.float32, attn_implementation="sdpa")
model.config.use_cache = False
if work["loraRank"] > 0:
    linear = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    rank = work["loraRank"]
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=linear))
model.train()
forward = torch.compile(model) if work["compile"] else model
trainable = [p for p in model.parameters() if p.requires_grad]
adam = work["adam"]
optimizer = torch.optim.AdamW(
    trainable, lr=adam["learningRate"], betas=(adam["beta1"], adam["beta2"]), eps=adam["epsilon"],
    weight_decay=adam["weightDecay"], fused=True,
)

data = work["data"]
prompt_width = max(d["promptLength"] for d in data)
answer_width = max(len(d["tokens_T"]) - d["promptLength"] for d in data)


def laid_out(values, fill=0.0):
    """[B, prompt_width + answer_width], each prompt ending and each answer beginning at prompt_width."""
    rows = []
    for d, v in zip(data, values):
        left = prompt_width - d["promptLength"]
        right = answer_width - (len(d["tokens_T"]) - d["promptLength"])
        rows.append([fill] * left + v + [fill] * right)
    return torch.tensor(rows)


tokens = laid_out([d["tokens_T"] for d in data], 0)
attention_mask = laid_out([[1] * len(d["tokens_T"]) for d in data], 0)
position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
targets = tokens[:, prompt_width:]
weights, advantages, sampler_logprobs = (
    laid_out([d[name] for d in data])[:, prompt_width:] for name in ("weights_T", "advantages_T", "samplerLogprobs_T")
)


def step():
    logits = forward(
        input_ids=tokens, attention_mask=attention_mask, position_ids=position_ids, logits_to_keep=answer_width + 1
    ).logits[:, :-1]
    logprobs = -F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    loss = -((logprobs - sampler_logprobs).exp() * advantages * weights).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trainable, adam["gradClipNorm"])
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"loss": loss.item()}


serve_rounds(["torch", "transformers", "peft"], step)
