"""Makes a failing program small: deletes and simplifies parts of its tree for as long as it fails in the same way."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import os
import select
import signal
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from . import check
from .check import Failure


def isolated(source: str, failure: Failure, seconds: float = 40) -> Failure | None:
    """Checks a program in a forked process, so that a crash is a failure like others."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            said = partial(os.write, writer, b" ")
            found = check.check(source, failure.seed, failure.mode, failure.backend, survived=said)
            with os.fdopen(writer, "w") as out:
                json.dump(found and found.data(), out)
        finally:
            os._exit(0)
    os.close(writer)
    data, until = b"", time.time() + seconds
    while select.select([reader], [], [], max(0.0, until - time.time()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        data += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if not data and os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        return None  # the eager run crashes
    if not data.strip():
        kind = "hang" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else "crash"
        return replace(failure, kind=kind, detail=f"status {status}", source=source)
    found = json.loads(data)
    return found and Failure(**found)


def shrink(failure: Failure, seconds: float) -> Failure | None:
    """The smallest program found in that time that fails with the same kind; `None` if it does not fail again alone."""
    until = time.time() + seconds
    best = isolated(failure.source, failure)
    if best is None:
        return None
    kind, progress = best.kind, True
    while progress and time.time() < until:
        progress = False
        skip = 0
        while time.time() < until:
            candidate = next(iter(_drop(_candidates(best.source), skip)), None)
            if candidate is None:
                break
            found = isolated(candidate, failure) if _valid(candidate) else None
            if found and found.kind == kind:
                best, progress = found, True
            else:
                skip += 1
    return best


def _drop(items: Iterator[str], count: int) -> Iterator[str]:
    for _ in range(count):
        if next(items, None) is None:
            return
    yield from items


def _valid(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<candidate>", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _candidates(source: str) -> Iterator[str]:
    """Smaller programs: runs of statements deleted, blocks replaced by what is in them, expressions by their parts."""
    tree = ast.parse(source)
    for edit in (_without_statements, _hoisted, _without_clauses, _simpler_expressions):
        for made in edit(tree):
            with contextlib.suppress(ValueError):  # a part that cannot stand there, as a call within an f-string's text
                yield ast.unparse(ast.fix_missing_locations(made)) + "\n"


def _bodies(tree: ast.AST) -> list[tuple[int, str]]:
    """(index in `ast.walk`, field) of every list of statements."""
    fields = ("body", "orelse", "finalbody")
    return [
        (k, f)
        for k, n in enumerate(ast.walk(tree))
        for f in fields
        if isinstance(getattr(n, f, None), list) and getattr(n, f)
    ]


def _node(tree: ast.AST, index: int) -> ast.AST:
    return list(ast.walk(tree))[index]


def _without_statements(tree: ast.Module) -> Iterator[ast.AST]:
    for index, field in _bodies(tree):
        size = len(getattr(_node(tree, index), field))
        width = size
        while width:
            for start in range(0, size, width):
                made = copy.deepcopy(tree)
                owner = _node(made, index)
                kept = getattr(owner, field)
                if len(kept) == 1 and isinstance(kept[0], ast.Pass):
                    break
                del kept[start : start + width]
                if not kept and field == "body" and not isinstance(owner, ast.Module):
                    kept.append(ast.Pass())
                yield made
            width //= 2


def _hoisted(tree: ast.Module) -> Iterator[ast.AST]:
    compound = (ast.If, ast.For, ast.While, ast.With, ast.Try)
    for index, field in _bodies(tree):
        for k, statement in enumerate(getattr(_node(tree, index), field)):
            if not isinstance(statement, compound):
                continue
            for part in ("body", "orelse", "finalbody"):
                if getattr(statement, part, None):
                    made = copy.deepcopy(tree)
                    kept = getattr(_node(made, index), field)
                    kept[k : k + 1] = getattr(kept[k], part)
                    yield made


def _without_clauses(tree: ast.Module) -> Iterator[ast.AST]:
    for index, node in enumerate(ast.walk(tree)):
        for field in ("handlers", "items", "decorator_list", "cases", "names", "args", "keywords", "elts", "keys", "values", "defaults", "kw_defaults", "kwonlyargs", "generators", "ops", "comparators", "bases"):  # fmt: skip
            parts = getattr(node, field, None)
            if not isinstance(parts, list):
                continue
            for k in range(len(parts)):
                made = copy.deepcopy(tree)
                owner = _node(made, index)
                del getattr(owner, field)[k]
                if isinstance(node, ast.Dict) and field == "keys":
                    del owner.values[k]
                if isinstance(node, ast.Compare) and field == "ops":
                    del owner.comparators[k]
                yield made


def _simpler_expressions(tree: ast.Module) -> Iterator[ast.AST]:
    for index, node in enumerate(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for k, part in enumerate(values):
                if not isinstance(part, ast.expr) or isinstance(getattr(part, "ctx", None), (ast.Store, ast.Del)):
                    continue
                inner = [c for c in ast.iter_child_nodes(part) if isinstance(c, ast.expr)]
                if not isinstance(part, (ast.Constant, ast.Name)):
                    inner += [ast.Constant(0), ast.Constant(None)]
                    if not (isinstance(part, ast.Name)):
                        inner.append(ast.Name("x", ast.Load()))
                for replacement in inner:
                    made = copy.deepcopy(tree)
                    owner = _node(made, index)
                    if isinstance(value, list):
                        getattr(owner, field)[k] = replacement
                    else:
                        setattr(owner, field, replacement)
                    yield made
