"""Goldens of the tracer: `tests/trace/*.md` hold Python snippets, each with the graph, guards and breaks it must give.

A snippet defines `f` and `args`. `BLESS=1` rewrites what follows it. Guards on values that differ between machines and
runs (code hashes, the thread's state) are shown without them.
"""

import os
import re
from pathlib import Path

import pytest
import torch

import flambeau

pytestmark = pytest.mark.plain_only("about graphs and guards as text")

FOLDER = Path(__file__).parents[1] / "trace"
CASE = re.compile(
    r"^## (?P<title>.+?)\n\n(?P<text>.*?)```python\n(?P<code>.*?)```\n(?P<rest>.*?)(?=^## |\Z)", re.S | re.M
)


def cases(path):
    """The cases of a file: title and match."""
    return [(m["title"], m) for m in CASE.finditer(path.read_text())]


ALL = [(path, title) for path in sorted(FOLDER.glob("*.md")) for title, _ in cases(path)]


def settle(line):
    """A guard's text without what differs between machines and runs."""
    line = re.sub(r"the code [0-9a-f]{16}", "the code ...", line)
    return re.sub(r"torch's state: .*$", "torch's state: ...", line)


def traced(code):
    """What becomes of a snippet, as Markdown."""
    space = {"torch": torch, "flambeau": flambeau, "__name__": "snippet"}
    exec(compile(code, "snippet.py", "exec"), space)
    torch.manual_seed(0)
    compiled = flambeau.compile(space["f"], backend="eager")
    try:
        compiled(*space["args"])
        raised = ""
    except Exception as error:
        raised = f"\nraises: `{type(error).__name__}: {error}`\n"
    data = flambeau._native.explain_data(compiled)
    import json

    data = json.loads(data)
    parts = [raised]
    for frame in data["frames"]:
        guards = "\n".join(settle(line) for line in frame["guards"])
        parts.append(f"\n```text\n{frame['graph'].strip()}\n```\n\n```text\n{guards}\n```\n")
    for reason in data["breaks"]:
        parts.append(f"\nbreaks: `{reason['text'].splitlines()[0]}`\n")
    return "".join(parts)


@pytest.mark.parametrize(("path", "title"), ALL, ids=lambda v: v.stem if isinstance(v, Path) else v.replace(" ", "_"))
def test_golden(path, title):
    match = dict(cases(path))[title]
    now = traced(match["code"])
    if os.environ.get("BLESS"):
        text = path.read_text()
        start, end = match.span("rest")
        tail = text[end:]
        path.write_text(text[:start] + now + ("\n" if tail else "") + tail)
        return
    assert match["rest"].strip() == now.strip()


def test_there_are_goldens():
    assert len(ALL) >= 10
