"""The modes in which one program runs: as it is, in one more frame, with a break at each leaf return, nested breaks off.

The end-to-end tests run in these modes too: `tests/conftest.py`.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import flambeau

from .program import ARGUMENTS

MODES = ("plain", "wrap", "leaf", "flat", "warm")

#: One more frame round `{f}`: its parameters, the arguments it passes on, and another statement of it.
WRAPPERS = [
    "def root({parameters}):\n    return {f}({arguments})\n",
    "def root({parameters}):\n    result = {f}({arguments})\n    {extra}\n    return result\n",
    "def root({parameters}):\n    for _ in range(1):\n        result = {f}({arguments})\n    return result\n",
    "def root(*args, **kwargs):\n    k = len(args)\n    result = [{f}(*args, **kwargs), k]\n    return result[0]\n",
]


def _parsed(text: str, place: ast.AST) -> list[Any]:
    """Statements, on the line of what they stand for."""
    made = ast.parse(text)
    for node in ast.walk(made):
        if "lineno" in node._attributes:
            ast.copy_location(node, place)
    return list(made.body)


class _LeafBreaks(ast.NodeTransformer):
    """`return e` becomes `leaf = e; graph_break(); return leaf` in functions that call no function of the program."""

    def __init__(self, tree: ast.Module):
        self.defined = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}

    def _leaf(self, node: ast.AST) -> bool:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
            n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
        }
        return not names & self.defined

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if self._leaf(node):
            _Returns().generic_visit(node)
            if not isinstance(node.body[-1], ast.Return):
                node.body += _parsed("flambeau.graph_break()", node.body[-1])
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self.generic_visit(node)
        if self._leaf(node):
            (made,) = _parsed("(0, flambeau.graph_break())[0]", node)
            made.value.value.elts[0] = node.body
            node.body = made.value
        return node


class _Returns(ast.NodeTransformer):
    """The returns of one function."""

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        made = _parsed("leaf = None\nflambeau.graph_break()", node)
        made[0].value = node.value or made[0].value
        leaf = ast.copy_location(ast.Name("leaf", ast.Load()), node)
        return [*made, ast.copy_location(ast.Return(leaf), node)]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_FunctionDef


def leaf_breaks(tree: ast.Module) -> ast.Module:
    """The program with a graph break at each leaf return; `flambeau` must be a name of it."""
    changed: ast.Module = _LeafBreaks(tree).visit(tree)
    return changed


def transform(source: str, mode: str, seed: int) -> tuple[str, str]:
    """The source in this mode, and the name of the function to compile."""
    if mode == "wrap":
        wrapper = WRAPPERS[seed % len(WRAPPERS)]
        return source + wrapper.format(f="f", parameters=ARGUMENTS, arguments=ARGUMENTS, extra="x.add(1)"), "root"
    if mode == "leaf":
        return ast.unparse(leaf_breaks(ast.parse(source))) + "\n", "f"
    return source, "f"


def wrapped(fn: Any) -> Callable[..., Any]:
    """One more frame round a function, with its parameters and code of its own."""
    code = fn.__code__
    signature = inspect.signature(fn, follow_wrapped=False)
    parameters, arguments = _spelled(signature)
    name = f"{fn.__qualname__} {hash((code, code.co_filename))}"  # another code, another frame, as without a wrapper
    shape = zlib.crc32(fn.__qualname__.encode()) % len(WRAPPERS)
    if parameters.startswith("self"):  # as a method; the class decides what is compiled for it
        shape %= len(WRAPPERS) - 1
    text = WRAPPERS[shape].format(f="_wrapped", parameters=parameters, arguments=arguments, extra="pass")
    scope: dict[str, Any] = {"_wrapped": fn, "__name__": "wrap"}
    exec(compile(text, f"<wrap {name}>", "exec"), scope)
    root: types.FunctionType = scope["root"]
    if shape != len(WRAPPERS) - 1:
        root.__defaults__, root.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    return root


def _spelled(signature: inspect.Signature) -> tuple[str, str]:
    """Parameters and arguments as text. Defaults are set on the function; here they only say that there is one."""
    parameters, arguments, bare = [], [], False
    kinds = inspect.Parameter
    every = list(signature.parameters.values())
    for i, p in enumerate(every):
        default = "" if p.default is kinds.empty else "=None"
        if p.kind is kinds.VAR_POSITIONAL:
            bare = True
            parameters.append(f"*{p.name}")
            arguments.append(f"*{p.name}")
        elif p.kind is kinds.VAR_KEYWORD:
            parameters.append(f"**{p.name}")
            arguments.append(f"**{p.name}")
        elif p.kind is kinds.KEYWORD_ONLY:
            parameters += [] if bare else ["*"]
            bare = True
            parameters.append(f"{p.name}{default}")
            arguments.append(f"{p.name}={p.name}")
        else:
            parameters.append(f"{p.name}{default}")
            arguments.append(p.name)
            last = i + 1 == len(every) or every[i + 1].kind is not kinds.POSITIONAL_ONLY
            parameters += ["/"] if p.kind is kinds.POSITIONAL_ONLY and last else []
    return ", ".join(parameters), ", ".join(arguments)


@contextlib.contextmanager
def settings(mode: str) -> Iterator[None]:
    """Flambeau's settings in this mode."""
    if mode == "flat":
        with flambeau.config.patch(nested_graph_breaks=False):
            yield
    else:
        yield
