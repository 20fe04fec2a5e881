"""Builds compiled frames by hand, for tests of the client's runtime that need no daemon."""

import json

import torch

from flambeau._native import _testing

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.bool: "Bool", torch.bfloat16: "Bf16"}
CPU = {"kind": 0, "index": -1}


def const(value):
    """The serialised form of a constant."""
    match value:
        case None:
            return "None"
        case bool():
            return {"Bool": value}
        case int():
            return {"Int": value}
        case float():
            return {"Float": value}
        case str():
            return {"Str": value}
        case tuple():
            return {"Tuple": [const(v) for v in value]}
        case torch.dtype():
            return {"Dtype": DTYPES[value]}
    raise TypeError(value)


class Node(int):
    """A reference to a graph's node."""


class Reg(int):
    """A reference to a plan's register."""


class Frame:
    """A compiled frame under construction."""

    def __init__(self):
        self.sources, self.guards, self.symbols = [], [], []
        self.nodes, self.outputs, self.builds, self.effects = [], [], [], []
        self.steps, self.inputs, self.regs, self.plan_outputs, self.kernels = [], [], 0, None, []
        self.commit, self.end, self.kind = None, "Nothing", "Eager"

    def source(self, step, base=None):
        """The source one step from `base`."""
        node = {"base": base, "step": step}
        if node in self.sources:
            return self.sources.index(node)
        self.sources.append(node)
        return len(self.sources) - 1

    def path(self, *steps):
        """The source at the end of some steps."""
        base = None
        for step in steps:
            base = self.source(step, base)
        return base

    def guard(self, source, kind):
        """Adds a guard."""
        self.guards.append({"source": source, "kind": kind})
        return len(self.guards) - 1

    def guard_tensor(self, source, tensor, sizes=None, strides=None):
        """Adds a guard on all of a tensor's metadata."""
        kind = type(tensor)
        guard = {
            "class": {"module": kind.__module__, "qualname": kind.__qualname__},
            "dtype": DTYPES[tensor.dtype],
            "device": CPU,
            "sizes": sizes or [{"Const": s} for s in tensor.size()],
            "strides": strides or [{"Const": s} for s in tensor.stride()],
            "requires_grad": tensor.requires_grad,
            "is_leaf_or_view": None,
            "dispatch_keys": torch._C._dispatch_keys(tensor).raw_repr(),
        }
        return self.guard(source, {"Tensor": guard})

    def placeholder(self, source):
        """Adds a graph input."""
        return self._node({"Placeholder": source})

    def call(self, target, *args, **kwargs):
        """Adds a call: of a function if the target has a dot, else of a method (one that ends in `_` commits)."""
        effect = "Commits" if target.endswith("_") else "None"
        target = {"Function": target} if "." in target else {"Method": target}
        named = [[k, self._arg(v)] for k, v in kwargs.items()]
        return self._node({"Call": {"target": target, "args": [self._arg(a) for a in args], "kwargs": named}}, effect)

    def _node(self, op, effect="None"):
        self.nodes.append(
            {
                "name": f"n{len(self.nodes)}",
                "op": op,
                "meta": {"Const": "None"},
                "location": None,
                "stack": [],
                "effect": effect,
                "view": False,
                "torchs": False,
                "fresh": False,
                "schema": None,
            }
        )
        return Node(len(self.nodes) - 1)

    def _arg(self, value):
        match value:
            case Node():
                return {"Node": int(value)}
            case list():
                return {"List": [self._arg(v) for v in value]}
            case slice():
                return {"Slice": [self._arg(v) for v in (value.start, value.stop, value.step)]}
            case tuple():
                return {"Tuple": [self._arg(v) for v in value]}
        return {"Const": const(value)}

    def build(self, build):
        """Adds an object to make."""
        self.builds.append(build)
        return len(self.builds) - 1

    def returns(self, *nodes):
        """Returns one graph output, or a tuple of several."""
        self.outputs = [int(n) for n in nodes]
        self._outputs(len(nodes))

    def _outputs(self, count):
        ids = [self.build({"Output": i}) for i in range(count)]
        self.gives(ids[0] if count == 1 else self.tuple(*ids))

    def gives(self, build):
        """Returns an object that was made."""
        self.end = {"Return": build}

    def tuple(self, *parts):
        """Adds a tuple of objects to make."""
        return self.build({"Tuple": [list(parts), None]})

    def function(self, like, closure=()):
        """Adds a function with the code of `like` and the globals of the frame's function."""
        code, globals = json.loads(_testing.code_json(like.__code__)), self.path("Function", "Globals")
        parts = {"code": {"Code": code}, "globals": globals, "qualname": like.__qualname__}
        return self.build({"Function": parts | {"defaults": None, "kwdefaults": None, "closure": list(closure)}})

    def resume(self, like, *state):
        """Adds a resume function and its state."""
        names = json.loads(_testing.code_json(like.__code__))["hash"]
        return {"function": self.function(like), "state": self.tuple(*state), "frames": names}

    def breaks(self, action, args, then, catch=None, code="UserBreak"):
        """Ends in a graph break: the build `action` is called with these, `then` and `catch` say how to go on."""
        reason = {"code": code, "detail": "made by a test", "stack": [], "raises": False, "escapes": False}
        action = [action, self.tuple(*args)]
        self.end = {"Break": {"reason": reason, "action": action, "then": then, "catch": catch, "varying": []}}

    def native(self, inputs, steps, outputs, commit=None):
        """Makes the body a plan."""
        self.kind, self.inputs, self.steps, self.plan_outputs = "Native", inputs, steps, outputs
        self.commit = len(steps) if commit is None else commit
        self._outputs(len(outputs))

    def json(self):
        """What the runtime reads."""
        if self.kind == "Native":
            regs = 1 + max([-1, *range(len(self.inputs)), *(r for s in self.steps for r in _regs(s))])
            body = {
                "regs": regs,
                "inputs": self.inputs,
                "objects": [],
                "steps": self.steps,
                "outputs": self.plan_outputs,
                "backend": "cpu",
                "device": CPU,
                "kernels": self.kernels,
                "written": [],
                "commit": self.commit,
                "restores": False,
            }
        else:
            body = {"nodes": self.nodes, "outputs": self.outputs, "locations": [], "default_dtype": "F32"}
            body |= {"restores": False, "checkpoints": []}
        frame = {
            "frame": {"code": [0] * 32, "path": []},
            "guards": {"sources": {"nodes": self.sources}, "guards": self.guards},
            "symbols": self.symbols,
            "indices": [],
            "body": {self.kind: body},
            "exit": {"builds": self.builds, "effects": self.effects, "end": self.end, "handles": False},
            "graph_text": "",
            "fallback": None,
        }
        return json.dumps(frame)

    def install(self, function, *args, **options):
        """The frame, ready to be called."""
        return _testing.TestFrame(self.json(), function, args, **options)


def _regs(step):
    for value in step.values() if isinstance(step, dict) else ():
        if isinstance(value, int):
            yield value
        else:
            yield from (v for k, v in value.items() if k == "reg")
            yield from value.get("results", ())
