"""Transformers: greedy and sampled text generation of a small Llama, with dynamic and static caches."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ..program import Program


def program(compile):
    config = LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    model.forward = compile(model.forward)

    def generate(ids):
        greedy = model.generate(ids, max_new_tokens=6, do_sample=False)
        sampled = model.generate(ids, max_new_tokens=5, do_sample=True, top_k=10, temperature=0.9)
        static = model.generate(
            ids, max_new_tokens=5, do_sample=False, cache_implementation="static", disable_compile=True
        )
        return greedy, sampled, static

    inputs = [lambda: (torch.randint(2, 100, (2, 5)),), lambda: (torch.randint(2, 100, (1, 7)),)]
    return Program(generate, inputs, times=2)
