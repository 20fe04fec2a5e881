"""PEFT: LoRA adapters on a small GPT-2: training loss, a second adapter, merging, and gradients of the adapters
alone."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from ..program import Program


def program(compile):
    base = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=32, n_embd=32, n_layer=2, n_head=2, use_cache=False))
    model = get_peft_model(
        base, LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], lora_dropout=0.1, fan_in_fan_out=True)
    )
    model.add_adapter("other", LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))

    @compile
    def step(ids):
        return model(input_ids=ids, labels=ids).loss

    def both(ids):
        model.set_adapter("default")
        first = step(ids)
        model.set_adapter("other")
        second = step(ids)
        return first, second

    inputs = [lambda: (torch.randint(0, 60, (2, 10)),), lambda: (torch.randint(0, 60, (3, 7)),)]
    return Program(both, inputs, state=[model], times=2, tolerance=1e-3)
