"""Models: for each kind of guard of their compiled frames, changes of what some guards of that kind are about."""

from __future__ import annotations

import collections
import json
import random
import types
from contextlib import nullcontext
from typing import Any

import models
import pytest
import torch

import flambeau
from flambeau._native import _testing

from .changes import Around, Change, at
from .places import Neighbourhood, Path, read

GUARDS = 2  # of each kind, for each kind of last step
CHANGES = 2  # of what each is about


class Standing:
    """A world that is loaded once: a model and its arguments, with its compiled view."""

    def __init__(self, name: str):
        torch.manual_seed(0)
        self.model, args = models.build(name, 2)
        small = [arg[..., :64, :64] if arg.dim() == 4 else arg[:, :16] for arg in args]  # images; tokens
        self.args: list[Any] = [self.model, *(arg.contiguous() for arg in small)]
        self.module = types.ModuleType("program")
        self.around: Around = nullcontext
        self.view = flambeau.compile(self.model, backend="eager", dynamic=False)

    def call(self, function: Any) -> Any:
        """The result, or the exception's type and message."""
        torch.default_generator.manual_seed(1)
        with torch.no_grad(), self.around():
            try:
                return function(*self.args[1:])
            except Exception as error:
                return type(error), str(error)

    def differs(self) -> str:
        """How the compiled model differs from the model, if it does."""
        expected, actual = self.call(self.model), self.call(self.view)
        if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
            return "" if type(expected) is type(actual) and expected == actual else f"{actual} instead of {expected}"
        facts = lambda t: (type(t), t.dtype, t.shape, t.stride(), t.requires_grad)
        if facts(expected) != facts(actual):
            return f"{facts(actual)} instead of {facts(expected)}"
        same = torch.allclose(expected, actual, rtol=1e-4, atol=1e-5, equal_nan=True)
        return "" if same else f"values differ by {(expected - actual).abs().max()}"

    def guards(self) -> list[Any]:
        """Guards of the model's own frames."""
        frames = json.loads(_testing.guards(self.view._flambeau_compiled, self.view, *self.args[1:]))
        return [guard for frame in frames if frame["code"] == 0 for guard in frame["guards"]]


class Along(Neighbourhood):
    """The places on the way to one."""

    def __init__(self, world: Any, path: Path):
        self.world, self.names = world, {}
        self.paths = [path[:k] for k in range(1, len(path) + 1)]
        self.values = {p: read(world, p) for p in self.paths}


def place(steps: list[Any]) -> Path | None:
    """Where a guard's value is, if it is in the model or its arguments."""
    made: list[Any] = []
    for step in steps:
        name, key = next(iter(step.items())) if isinstance(step, dict) else (step, None)
        key = next(iter(key.values())) if isinstance(key, dict) else key
        last = made[-1] if made else None
        match name:
            case "Arg" if key < 2:  # behind the module and *args is **kwargs, made by the call
                made.append(("arg", key))
            case "Index" if last == ("arg", 1) and len(made) == 1:
                made[-1] = ("arg", 1 + key)
            case "Dict":
                made.append(("dict",))
            case "Item" if last == ("dict",):
                made[-1] = ("attr", key)
            case "Item":
                made.append(("item", key))
            case "Index":
                made.append(("index", key))
            case _:
                return None
    return tuple(made) if made and ("dict",) not in made and made != [("arg", 1)] else None


def sampled(world: Standing, chance: random.Random) -> list[Change]:
    """Changes of what some guards of each kind are about."""
    kinds = collections.defaultdict(list)
    for guard in world.guards():
        path = place(guard["path"])
        if (path and len(path) > 1) or (path and path[0] != ("arg", 0)):
            kind = guard["kind"]
            kinds[kind, path[-1][0]].append(path)
    assert {kind for kind, _ in kinds} >= {"Tensor", "Equals", "Len"}, kinds.keys()
    made = []
    for _, paths in sorted(kinds.items()):
        for path in chance.sample(paths, min(GUARDS, len(paths))):
            changes = list(at(Along(world, path), path))
            made += chance.sample(changes, min(CHANGES, len(changes)))
    return made


@pytest.mark.parametrize("name", ["resnet18", "transformer_encoder", "decoder"])
def test_changes_of_what_guards_are_about(name):
    torch.set_num_threads(1)
    world = Standing(name)
    assert not world.differs()
    made, refused = 0, []
    wrong = []
    for change in sampled(world, random.Random(name)):
        flambeau.reset()
        assert not world.differs()
        try:
            undo = change.apply(world)
        except Exception as error:
            refused.append((change.name, error))
            continue
        found = world.differs()
        undo()
        made += 1
        wrong += [f"{change.name}: {text}" for text in (found, world.differs()) if text]
    assert not wrong
    assert made > 10 > len(refused), refused
