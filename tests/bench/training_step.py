"""One process that trains one model as one compiler runs it, and prints a line of JSON. Compiled is the model, or the
whole step: forward, loss, backward, optimizer.

Seconds and MB. `first` is the first step (forward, loss, backward, optimizer), less one eager step; `step` the median
of later steps; `peak_mb` how far a step raises resident memory above where it stands.

Usage: training_step.py MODEL BATCH SECONDS eager|flambeau|torch [THREADS] [SGD|AdamW] [model|whole]
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from first_call import memory, settle, timed
from torch import nn

UNTIMED = 5
"""Steps until the caches hold what the later ones find there."""
FEWEST = 7
"""Steps that are timed, however long they take."""
WORDS, LENGTH = 1000, 64
SIDE = 64
"""Of images, in pixels."""


class Tagger(nn.Module):
    """An embedding, two layers of LSTM in both directions, a class for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        self.layers = nn.LSTM(64, 64, 2, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(128, 20)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits, a row for each word."""
        return self.classes(self.layers(self.words(words))[0]).flatten(0, 1)


def of_images(make: Callable[[], nn.Module]) -> Callable[[int], tuple]:
    """A classifier of images in ten classes."""

    def build(batch: int) -> tuple:
        return make(), (torch.randn(batch, 3, SIDE, SIDE),), {}, torch.randint(0, 10, (batch,))

    return build


def of_text(make: Callable[[], nn.Module], labels: Callable[[int], torch.Tensor]) -> Callable[[int], tuple]:
    """A model of transformers that computes its loss itself."""

    def build(batch: int) -> tuple:
        words = torch.randint(0, WORDS, (batch, LENGTH))
        return make(), (), {"input_ids": words, "labels": labels(batch)}, None

    return build


def same_words(batch: int) -> torch.Tensor:
    return torch.randint(0, WORDS, (batch, LENGTH))


def resnet18() -> nn.Module:
    import torchvision

    return torchvision.models.resnet18(num_classes=10)


def of_timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, num_classes=10, **options)

    return make


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=3, **sizes))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=4, n_head=4, vocab_size=WORDS))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 688}
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, **sizes))


def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 256, "num_layers": 3, "num_heads": 4, "d_ff": 1024, "d_kv": 64, "vocab_size": WORDS}
    return T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, pad_token_id=0, **sizes))


def mlp(batch: int) -> tuple:
    layers = [nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Dropout(0.1), nn.Linear(128, 10)]
    return nn.Sequential(*layers), (torch.randn(batch * 8, 64),), {}, torch.randint(0, 10, (batch * 8,))


def tagger(batch: int) -> tuple:
    words = torch.randint(0, WORDS, (batch, LENGTH))
    return Tagger(), (words,), {}, torch.randint(0, 20, (batch * LENGTH,))


MODELS: dict[str, Callable[[int], tuple]] = {
    "mlp": mlp,
    "lstm_tagger": tagger,
    "resnet18": of_images(resnet18),
    "convnext_atto": of_images(of_timm("convnext_atto")),
    "vit_tiny": of_images(of_timm("vit_tiny_patch16_224", img_size=SIDE)),
    "bert": of_text(bert, lambda batch: torch.randint(0, 3, (batch,))),
    "gpt2": of_text(gpt2, same_words),
    "llama": of_text(llama, same_words),
    "t5": of_text(t5, same_words),
}
"""Gives the model, positional and named arguments, and what a loss of ours compares with, for a batch size."""


def main() -> None:
    name, batch, seconds, compiler = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(int(sys.argv[5]) if len(sys.argv) > 5 else 2)
    torch.manual_seed(0)
    model, args, kwargs, target = MODELS[name](batch)
    kind, compiled = sys.argv[6] if len(sys.argv) > 6 else "SGD", sys.argv[7] if len(sys.argv) > 7 else "model"
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3)

    def plain_step(call: Callable) -> None:
        optimizer.zero_grad()
        made = call(*args, **kwargs)
        loss = made.loss if target is None else nn.functional.cross_entropy(made, target)
        loss.backward()
        optimizer.step()

    def make(compiler: Callable) -> tuple[Callable, Callable]:
        return (model, compiler(plain_step)) if compiled == "whole" else (compiler(model), plain_step)

    step = plain_step
    step(model)
    eager = min(timed(lambda: step(model)) for _ in range(3))
    begun = time.perf_counter()
    call: Callable = model
    if compiler == "flambeau":
        import flambeau

        call, step = make(flambeau.compile)
    elif compiler == "torch":
        call, step = make(torch.compile)
    step(call)
    first = time.perf_counter() - begun - eager
    for _ in range(UNTIMED):
        step(call)
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < FEWEST:
        times.append(timed(lambda: step(call)))
    rises = []
    for _ in range(3):
        before = settle()
        Path("/proc/self/clear_refs").write_text("5")
        step(call)
        rises.append(memory("VmHWM") - before)
    print(json.dumps({"first": first, "step": statistics.median(times), "peak_mb": min(rises)}))


if __name__ == "__main__":
    main()
