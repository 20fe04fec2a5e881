"""Records every torch call that real models make, in the form of `gen_rules.py`, to see which ones the rules cover.

python tests/ops/gen_models.py /tmp/models.json && FLAMBEAU_OPS_CASES=/tmp/models.json cargo test -p flambeau-ops
"""

import functools
import json
import math
import sys
from pathlib import Path

import torch
from gen_rules import observe

SKIP = {"__get__", "__class__", "__dict__", "requires_grad_", "__init__", "__new__", "size", "dim", "stride", "numel", "data_ptr",
        "is_contiguous", "__len__", "__repr__", "__hash__", "__format__", "item", "__bool__", "tolist", "get_device", "untyped_storage",
        "storage_offset", "nelement", "is_floating_point", "is_complex", "__torch_function__", "as_subclass", "_is_view", "__getattribute__"}  # fmt: skip
seen, lines, busy = set(), [], [False]


def recorder(name, function, method):
    @functools.wraps(function)
    def call(*args, **kwargs):
        tensors = any(isinstance(a, (torch.Tensor, list, tuple)) for a in (*args, *kwargs.values()))
        if busy[0] or (not tensors and not name.startswith("torch.")):
            return function(*args, **kwargs)
        busy[0] = True
        try:
            box = []

            def once(*a, **k):
                box.append(function(*a, **k))
                return box[0]

            try:
                observed = observe(once, args, kwargs)
            except Exception as error:
                print("cannot record", name, repr(error)[:80])
                return box[0] if box else function(*args, **kwargs)
            line = json.dumps([name, *(observed or [None])], separators=(",", ":"))
            if observed and line not in seen:
                seen.add(line)
                lines.append(line)
            return box[0] if box else function(*args, **kwargs)
        finally:
            busy[0] = False

    return call


def patch():
    base = torch._C.TensorBase
    for name in dir(base):
        method = getattr(base, name)
        kind = type(method).__name__
        if name in SKIP or kind not in ("method_descriptor", "wrapper_descriptor") or name in torch.Tensor.__dict__:
            continue
        if name.startswith("_") and not name.startswith("__"):
            continue
        setattr(torch.Tensor, name, recorder("." + name, method, True))
    spaces = [("torch", torch), ("torch._C._nn", torch._C._nn), ("torch._C._linalg", torch._C._linalg)]
    renamed = {}
    for prefix, space in spaces:
        for name in dir(space):
            function = getattr(space, name)
            if (
                type(function).__name__ == "builtin_function_or_method"
                and not name.startswith("__")
                and name not in SKIP
            ):
                if any(
                    w in name
                    for w in (
                        "grad_enabled",
                        "is_",
                        "get_",
                        "set_",
                        "autocast",
                        "promote_types",
                        "result_type",
                        "compile",
                        "manual_seed",
                    )
                ):
                    continue
                wrapped = recorder(f"{prefix}.{name}", function, False)
                renamed[id(function)] = wrapped
                setattr(space, name, wrapped)
    for name in dir(torch._C._VariableFunctions):
        function = getattr(torch._C._VariableFunctions, name)
        if type(function).__name__ == "builtin_function_or_method" and not name.startswith("_"):
            torch._VF.__dict__.setdefault(name, recorder(f"torch._VF.{name}", function, False)) if hasattr(
                torch._VF, "__dict__"
            ) else None
    F = torch.nn.functional
    for name, value in list(F.__dict__.items()):
        if id(value) in renamed:
            F.__dict__[name] = renamed[id(value)]


class Block(torch.nn.Module):
    def __init__(self, d=48, h=3):
        super().__init__()
        nn = torch.nn
        self.h, self.ln1, self.ln2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))

    def forward(self, x, slow):
        F = torch.nn.functional
        b, t, c = x.size()
        q, k, v = self.qkv(self.ln1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.h, c // self.h).transpose(1, 2) for y in (q, k, v))
        if slow:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = self.drop(F.softmax(att, dim=-1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).contiguous().view(b, t, c)))
        h = self.fc(self.ln2(x))
        h = (
            F.gelu(h, approximate="tanh")
            if slow
            else 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))
        )
        return x + self.drop(self.out(h))


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.tok, self.pos, self.blocks, self.head = (
            nn.Embedding(65, 48),
            nn.Embedding(32, 48),
            nn.ModuleList([Block(), Block()]),
            nn.Linear(48, 65, bias=False),
        )

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.tok(idx) + self.pos(pos)
        for i, block in enumerate(self.blocks):
            x = block(x, i == 0)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, torch.nn.functional.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )


def main():
    import timm
    import torchvision

    torch.manual_seed(0)
    models = [
        torchvision.models.resnet18(),
        torchvision.models.mobilenet_v2(),
        timm.create_model("vit_tiny_patch16_224"),
    ]
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoders = [
        torch.nn.TransformerEncoder(layer, 2),
        torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 64), 2, enable_nested_tensor=False),
    ]
    decoder = Decoder()
    images, words, tokens = torch.randn(2, 3, 224, 224), torch.randn(2, 5, 32), torch.randint(0, 65, (2, 16))
    patch()
    for model in models:
        for train in (False, True):
            model.train(train)(images)
        model.eval()(images.contiguous(memory_format=torch.channels_last))
        with torch.no_grad():
            model(images[:1])
    for encoder in encoders:
        encoder.train()(words)
        encoder.eval()(words)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(5) if encoder is encoders[0] else None
        encoder(words, mask=mask)
        with torch.no_grad():
            encoder(words)
    for train in (False, True):
        decoder.train(train)(tokens, tokens)
        decoder(tokens)
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    Path(sys.argv[1]).write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(lines), "cases")


if __name__ == "__main__":
    main()
