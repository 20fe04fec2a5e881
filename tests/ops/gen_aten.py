"""Writes `daemon/ops/src/aten.txt`: the aten overloads that a launch plan may call as they are.

    .venv/bin/python tests/ops/gen_aten.py

One line each: the schema as torch prints it without `aten::`, after `rng ` if it draws random numbers, and before
` | name` of the overload that writes into given tensors, where there is one. Listed is what makes new tensors and says
all it does in its schema: no views, no writes, no results whose size depends on values. Ops that torch composes of others
declare less than that: but for the ones in `COMPOSED` and the pointwise and `special_` ones, they may give an argument
back, or a view of it, and begin with `composed `."""

import re
from pathlib import Path

import torch

TARGET = Path(__file__).resolve().parents[2] / "daemon/ops/src/aten.txt"
COMPOSED = {
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "argsort",
    "binary_cross_entropy_with_logits",
    "cdist",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "cross_entropy_loss",
    "embedding_bag",
    "group_norm",
    "gru",
    "inner",
    "isfinite",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "linalg_norm",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "lstm",
    "matmul",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "min",
    "nanmean",
    "nll_loss_nd",
    "one_hot",
    "outer",
    "prelu",
    "relu6",
    "rms_norm",
    "rnn_relu",
    "rnn_tanh",
    "softmax",
    "square",
    "std",
    "tile",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "upsample_trilinear3d",
    "var",
}
# Reached by other names than their own.
PRIVATE = {
    "_is_all_true",
    "_is_any_true",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "uniform",
}
# Write to running statistics that their schemas do not mark, give memory of their arguments, draw random numbers, have fake
# kernels that say something else, or are no op that Python programs call by this name.
EXCLUDED = {"batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "batch_norm_update_stats"}
EXCLUDED |= {"lift", "native_batch_norm", "random", "resize", "segment_reduce", "set"}
EXCLUDED |= {"batch_norm", "data", "instance_norm", "unsafe_chunk", "unsafe_split"}
EXCLUDED |= {"unsafe_split_with_sizes"}
TYPES = re.compile(r"(Optional\[)?(List\[)?(Optional\[)?(Tensor|number|int|SymInt|float|bool|str|Device|Generator)\]*$")
# What the result of a composed op is, is asked for each call.
MAY_ALIAS = "maybe_aliasing_or_mutating"
TAGS = {"data_dependent_output", "dynamic_output_shape", MAY_ALIAS, "inplace_view", "out"}


def reachable(name: str) -> bool:
    """Whether Python programs have a name for the op."""
    places = [(torch, name), (torch.Tensor, name), (torch._C._nn, name)]
    for prefix, module in [
        ("special_", torch._C._special),
        ("linalg_", torch._C._linalg),
        ("fft_", torch._C._fft),
    ]:
        if name.startswith(prefix):
            places.append((module, name))
    named = name in PRIVATE or (name.startswith("_foreach_") and name != "_foreach_zero")
    return named or (not name.startswith("_") and any(hasattr(place, n) for place, n in places))


def listed(op: torch._ops.OpOverload) -> bool:
    """Whether a plan may call the overload."""
    schema = op._schema
    name = schema.name.removeprefix("aten::")
    return (
        reachable(name)
        and name not in EXCLUDED
        and (not name.endswith(("_backward", "_copy")) or name == "index_copy")
        and not name.startswith(
            ("cudnn_", "miopen_", "mkldnn_", "quantize", "fbgemm_", "slow_conv", "sparse_", "sym_", "to_")
        )
        and not (composed(op) and torch.Tag.nondeterministic_seeded in op.tags)
        and not any(tag.name in TAGS for tag in op.tags if not (composed(op) and tag.name == MAY_ALIAS))
        and "names" not in schema.overload_name
        and str(schema) != "aten::where(Tensor condition) -> Tensor[]"  # as many elements as there are
        and all(a.alias_info is None and TYPES.match(str(a.type)) for a in schema.arguments)
        and not any(str(a.type) == "List[number]" for a in schema.arguments)
        and len(schema.returns) > 0
        and all(r.alias_info is None for r in schema.returns)
        and {str(r.type) for r in schema.returns} in ({"Tensor"}, {"List[Tensor]"})
    )


def composed(op: torch._ops.OpOverload) -> bool:
    """Whether what the overload gives may be no new tensor, as torch composes it of other ops."""
    schema = op._schema
    name = schema.name.removeprefix("aten::")
    full = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    if name in COMPOSED or name.startswith("special_") or torch.Tag.pointwise in op.tags:
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")


def out_form(packet: torch._ops.OpOverloadPacket, schema: torch._C.FunctionSchema) -> str | None:
    """The overload with the same arguments and then as many out tensors as there are results."""
    wanted = [(a.name, str(a.type)) for a in schema.arguments]
    for name in packet.overloads():
        found = getattr(packet, name)._schema.arguments
        outs = [a for a in found if a.is_out]
        if (
            outs
            and [(a.name, str(a.type)) for a in found if not a.is_out] == wanted
            and len(outs) == len(schema.returns)
        ):
            return name
    return None


def text() -> str:
    """The file's content for the torch that is installed."""
    lines = set()
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        op = getattr(packet, schema.overload_name or "default", None)
        try:
            keep = isinstance(op, torch._ops.OpOverload) and listed(op)
        except RuntimeError:  # TorchScript's own, without a dispatcher entry
            continue
        if keep:
            text = str(schema).removeprefix("aten::")
            mark = "rng " if torch.Tag.nondeterministic_seeded in op.tags else "composed " if composed(op) else ""
            out = out_form(packet, schema)
            lines.add(f"{mark}{text}{f' | {out}' if out else ''}")
    order = sorted(lines, key=lambda line: re.sub(r"^(rng|composed) ", "", line))
    return "\n".join(order) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
