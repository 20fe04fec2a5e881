"""The mode of this run, and what it does: to source that is loaded, to what is compiled, to settings."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz import modes

import flambeau
from flambeau import _compile, _report

MODE = os.environ.get("FLAMBEAU_TEST_MODE", "plain")
#: Whether graphs, ops and breaks are as many as in the plain run.
COUNTED = MODE in ("plain", "wrap", "flat")
#: For tests whose frames read what other tests may have left in the process: imported modules, names in torch.
PROCESS = pytest.mark.plain_only("what the process holds depends on the tests that ran before", "warm")
#: For tests that compile many modules of equal structure.
SHARED_KEY = pytest.mark.plain_only("they share a key: which stored frames fit depends on the order of tests", "warm")

_compiled: list[Any] = []  # by this test
_ROOT = Path(__file__).parents[2]


def source(text: str) -> str:
    """A program's source in this mode; `flambeau` is one of its names."""
    return ast.unparse(modes.leaf_breaks(ast.parse(text))) if MODE == "leaf" else text


def start() -> None:
    """Called once, before tests are loaded."""
    if MODE == "leaf":
        sys.meta_path.insert(0, _Finder())
    plain = _compile.Options.start

    def in_mode(options: _compile.Options, fn: Callable[..., Any]) -> Any:
        if MODE == "leaf":  # the breaks would be errors
            options = replace(options, fullgraph=False)
        compiled = plain(options, modes.wrapped(fn) if MODE == "wrap" else fn)
        if MODE == "again":
            _compiled.append(compiled)
        return functools.update_wrapper(compiled, fn)

    _compile.Options.start = in_mode  # type: ignore[method-assign]


@contextlib.contextmanager
def test() -> Iterator[None]:
    """Round each test and its fixtures."""
    _compiled.clear()
    with modes.settings(MODE):
        yield


def after() -> None:
    """At the end of each test's call: in a new process nothing was traced."""
    if MODE == "again":
        again = flambeau.counters()["frames_traced"]
        # Refusals are not stored where the thread is in an unusual state: these frames ran eagerly as a whole.
        breaks = [b for c in _compiled for b in _report.explanation(c).data["breaks"]]
        eager = sum(b["count"] for b in breaks if not b["resumed"])
        assert again <= eager, f"{again} frames were traced again, {eager} in vain: {flambeau.counters()}"


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a file of programs with its leaf breaks; nothing of it is kept in `__pycache__`."""

    def get_code(self, fullname: str) -> types.CodeType:
        tree = ast.parse(self.get_data(self.path), self.path)
        after = next(i for i, node in enumerate(tree.body) if not _first(node))
        tree.body.insert(after, ast.Import([ast.alias("flambeau")]))
        return compile(ast.fix_missing_locations(modes.leaf_breaks(tree)), self.path, "exec", dont_inherit=True)


def _first(node: ast.stmt) -> bool:
    """What must stay at the top: the docstring, imports from the future."""
    return isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


class _Finder:
    """Finds the files that hold programs: tests, what they take programs from, example models."""

    NAMES = ("test_", "models", "reference", "samples")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith(self.NAMES):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or not spec.origin or Path(spec.origin).parent not in (_ROOT / "tests/e2e", _ROOT / "examples"):
            return None
        spec.loader = _Loader(spec.name, spec.origin)
        return spec
