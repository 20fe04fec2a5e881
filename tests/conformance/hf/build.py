"""Small models of transformers' architectures, made from their configurations by the names of fields.

Three sizes are tried, the smallest first, as no rule about names fits all: what builds and runs is taken.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
          "num_decoder_layers", "num_encoder_layers", "depth", "num_blocks", "num_encoder_blocks")  # fmt: skip
HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads",
         "attention_heads", "num_key_value_heads")  # fmt: skip
WIDTHS = ("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "embedding_size", "dim")
WIDE = (
    "intermediate_size",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "ffn_dim",
    "d_ff",
    "mlp_dim",
    "moe_intermediate_size",
)
WIDTH, COUNT, MOST = 64, 4, 80_000_000
"""Width, heads, and parameters that are not too many."""
BATCH, LENGTH = 2, 12


def names() -> list[str]:
    """All architectures with a base model."""
    return sorted(name for name in modeling_auto.MODEL_MAPPING_NAMES if name in CONFIG_MAPPING)


def configs(config: Any) -> Iterator[Any]:
    """A configuration and those inside it."""
    yield config
    for part in list(vars(config).values()):
        if isinstance(part, transformers.PretrainedConfig):
            yield from configs(part)


def shrink(config: Any, level: int) -> None:
    """0: all that a name tells; 1: layers and vocabularies; 2: layers."""
    for part in configs(config):
        fields = dict(vars(part))

        def give(names: tuple[str, ...], value: int, part: Any = part, fields: Any = fields) -> None:
            for name in names:
                if type(fields.get(name)) is int and fields[name] > value:
                    with contextlib.suppress(Exception):
                        setattr(part, name, value)

        give(LAYERS, 2)
        for name in ("layer_types", "mlp_layer_types", "indexer_types"):
            if isinstance(fields.get(name), list):
                with contextlib.suppress(Exception):
                    setattr(part, name, fields[name][:2])
        if level < 2:
            give(("vocab_size",), 512)
            for name, value in fields.items():
                if name.endswith("_token_id") and type(value) is int and value >= 512:
                    setattr(part, name, 3 + sum(map(ord, name)) % 500)
        if level < 1:
            give(WIDTHS, WIDTH)
            give(HEADS, COUNT)
            give(WIDE, 2 * WIDTH)
            give(("head_dim",), WIDTH // COUNT)
            give(("num_experts", "num_local_experts", "n_routed_experts"), 4)
            give(("num_experts_per_tok",), 2)
            if isinstance(fields.get("depths"), (list, tuple)):
                with contextlib.suppress(Exception):
                    part.depths = [1 for _ in fields["depths"]]
            give(("image_size",), max(32, 2 * fields["patch_size"]) if type(fields.get("patch_size")) is int else 64)


def build(name: str, level: int) -> Any:
    """The model, on the CPU; an error if it is too large."""
    config = CONFIG_MAPPING[name]()
    shrink(config, level)
    kind = modeling_auto.MODEL_MAPPING_NAMES[name]
    kind = getattr(transformers, kind if isinstance(kind, str) else kind[0])
    with torch.device("meta"):
        size = sum(p.numel() for p in kind(config).parameters())
    if size > MOST:
        raise ValueError(f"{size} parameters")
    torch.manual_seed(0)
    return kind(config).eval()


def find(config: Any, *names: str) -> Any:
    """The first number of such a name, in the configuration or those inside it."""
    for name in names:
        for part in configs(config):
            value = getattr(part, name, None)
            if isinstance(value, (list, tuple)) and value and type(value[0]) is int:
                return value[-1]
            if type(value) is int:
                return value
    return None


def inputs(model: Any) -> Iterator[dict[str, Any]]:
    """Arguments that the model may take, the likeliest first."""
    config, wanted = model.config, inspect.signature(model.forward).parameters
    words = min(find(config, "vocab_size") or 100, 100)
    ids = torch.randint(4, words, (BATCH, LENGTH)) if words > 8 else torch.randint(0, words, (BATCH, LENGTH))
    side = find(config, "image_size") or 64
    colours = find(config, "num_channels", "in_channels", "in_chans") or 3
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    decoder = {"decoder_input_ids": ids[:, :6]} if "decoder_input_ids" in wanted else {}
    text = {key: value for key, value in text.items() if key in wanted}
    if "input_ids" in wanted and "pixel_values" not in wanted:
        yield {**text, **decoder}
        yield {"input_ids": ids}
    if "pixel_values" in wanted:
        for size in dict.fromkeys((side, 64, 224)):
            image = {"pixel_values": torch.randn(BATCH, colours, size, size)}
            yield {**image, **text} if "input_ids" in wanted else image
            yield image
            yield {"pixel_values": torch.randn(BATCH, 4, colours, size, size), **text}
        yield text
    bins = find(config, "num_mel_bins", "feature_size", "input_feat_per_channel") or 80
    frames = 2 * (find(config, "max_source_positions") or 100)
    if "input_features" in wanted:
        for shape in ((BATCH, bins, frames), (BATCH, 100, bins), (BATCH, 100, 160)):
            yield {"input_features": torch.randn(shape), **decoder}
    if "input_values" in wanted:
        for shape in ((BATCH, 4000), (BATCH, 1, 4000), (BATCH, 64, bins), (BATCH, 1024, 128)):
            yield {"input_values": torch.randn(shape), **decoder}
    if "past_values" in wanted:
        length = find(config, "context_length", "num_input_channels") or 32
        yield {"past_values": torch.randn(BATCH, length, find(config, "num_input_channels") or 1)}


def ready(name: str) -> tuple[Any, dict[str, Any], int]:
    """A model that runs, its arguments, and the size that it took."""
    logging.disable(logging.WARNING)
    said = ""
    for level in range(3):
        try:
            model = build(name, level)
        except Exception as error:
            said = said or f"{type(error).__name__}: {str(error)[:150]}"
            continue
        torch.manual_seed(1)
        for arguments in inputs(model):
            try:
                with torch.no_grad():
                    model(**arguments)
            except Exception as error:
                said = f"{type(error).__name__}: {str(error)[:150]}"
                continue
            return model, arguments, level
    raise ValueError(said)
