"""One GRPO step of TRL's GRPOTrainer for `peer-grpo.ts`: sample groups, reward them, update once.

The peer's best reasonable settings: the whole batch at once for sampling and for the update, no reference model
(beta 0), no second pass for old log probabilities (one update per batch), no gradient checkpointing, sdpa, fused AdamW,
no logging, no checkpoints, generation by transformers (its fast engine, vLLM, needs a GPU). Answers have their full
length on both sides.
"""

import os
import tempfile

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from rounds import read_workload, say_ready, wait_for_round, Stopwatch

work = read_workload()
torch.set_num_threads(work["threads"])

folder = work["folder"]
groups, group_size, new_tokens = work["groups"], work["groupSize"], work["newTokens"]
tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
facts = {}


def reward_even(completion_ids, **_):
    """The share of even token ids: costs nothing, and differs within a group."""
    rewards = [sum(1 for i in ids if i % 2 == 0) / len(ids) for ids in completion_ids]
    facts["reward"] = sum(rewards) / len(rewards)
    facts["tokens"] = sum(map(len, completion_ids))
    return rewards


class Rounds(TrainerCallback):
    """A training step per round; between rounds the trainer waits."""

    def begin(self):
        if not wait_for_round():
            os._exit(0)
        self.stopwatch = Stopwatch()

    def on_train_begin(self, args, state, control, **_):
        say_ready("torch", "transformers", "trl")
        self.begin()

    def on_step_end(self, args, state, control, **_):
        self.stopwatch.result(facts)
        self.begin()


config = GRPOConfig(
    output_dir=tempfile.mkdtemp(prefix="osmosis-peer-"), use_cpu=True, bf16=False, seed=1,
    per_device_train_batch_size=groups * group_size, num_generations=group_size, gradient_accumulation_steps=1,
    steps_per_generation=1, num_iterations=1, max_completion_length=new_tokens, temperature=1.0, top_k=0, top_p=1.0,
    generation_kwargs={"min_new_tokens": new_tokens}, beta=0.0, loss_type="dapo", scale_rewards="group",
    gradient_checkpointing=False, learning_rate=work["learningRate"], lr_scheduler_type="constant", max_grad_norm=1.0,
    optim="adamw_torch_fused", max_steps=1000, logging_strategy="no", save_strategy="no", report_to=[],
    disable_tqdm=True, shuffle_dataset=False, dataloader_pin_memory=False,
)
trainer = GRPOTrainer(
    model=model, args=config, reward_funcs=reward_even, processing_class=tokenizer, callbacks=[Rounds()],
    train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in work["prompts"]]),
)
trainer.train()
