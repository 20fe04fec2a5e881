"""Transformers: BERT for sequence classification, T5 with its encoder and decoder, attention masks, hidden states."""

import torch
from transformers import BertConfig, BertForSequenceClassification, T5Config, T5ForConditionalGeneration

from ..program import Program


def program(compile):
    bert = BertForSequenceClassification(
        BertConfig(
            vocab_size=80,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            num_labels=3,
        )
    )
    t5 = T5ForConditionalGeneration(
        T5Config(vocab_size=80, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    )
    first, second = compile(bert), compile(t5)

    def step(ids, mask, labels):
        classified = first(input_ids=ids, attention_mask=mask, labels=labels, output_hidden_states=True)
        translated = second(input_ids=ids, attention_mask=mask, labels=ids)
        return classified, translated.loss, translated.logits

    def batch(n, length):
        mask = torch.ones(n, length, dtype=torch.long)
        mask[0, -2:] = 0
        return torch.randint(1, 80, (n, length)), mask, torch.randint(0, 3, (n,))

    return Program(step, [lambda: batch(2, 9), lambda: batch(3, 6)], state=[bert, t5], times=2, tolerance=2e-3)
