"""The modes in which one program runs: as it is, in one more frame, with a break at each leaf return, nested breaks off."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

import flambeau

from .program import ARGUMENTS

MODES = ("plain", "wrap", "leaf", "flat", "warm")

_WRAPPERS = [
    "def root({a}):\n    return f({a})\n",
    "def root({a}):\n    result = f({a})\n    x.add(1)\n    return result\n",
    "def root(*args):\n    k = len(args)\n    result = [f(*args), k]\n    return result[0]\n",
    "def root({a}):\n    for k in range(1):\n        result = f({a})\n    return result\n",
]


class _LeafBreaks(ast.NodeTransformer):
    """`return e` becomes `leaf = e; graph_break(); return leaf` in functions that call no function of the program."""

    def __init__(self, tree: ast.Module):
        self.defined = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
            n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
        }
        if not names & self.defined:
            node = _Returns().visit(node)
            if not isinstance(node.body[-1], ast.Return):
                node.body += ast.parse("flambeau.graph_break()").body
        return node


class _Returns(ast.NodeTransformer):
    """The returns of one function."""

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        made = ast.parse("leaf = 0\nflambeau.graph_break()\nreturn_ = leaf").body
        assign, break_, _ = made
        assert isinstance(assign, ast.Assign)
        assign.value = node.value or ast.Constant(None)
        return [assign, break_, ast.Return(ast.Name("leaf", ast.Load()))]


def transform(source: str, mode: str, seed: int) -> tuple[str, str]:
    """The source in this mode, and the name of the function to compile."""
    if mode == "wrap":
        return source + _WRAPPERS[seed % len(_WRAPPERS)].format(a=ARGUMENTS), "root"
    if mode == "leaf":
        tree = ast.parse(source)
        return ast.unparse(ast.fix_missing_locations(_LeafBreaks(tree).visit(tree))) + "\n", "f"
    return source, "f"


@contextlib.contextmanager
def settings(mode: str) -> Iterator[None]:
    """Flambeau's settings in this mode."""
    if mode == "flat":
        with flambeau.config.patch(nested_graph_breaks=False):
            yield
    else:
        yield


def available(mode: str) -> bool:
    """Whether this build has the mode."""
    try:
        with settings(mode):
            return True
    except (AttributeError, ValueError):
        return False
