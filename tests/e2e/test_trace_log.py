"""`FLAMBEAU_LOGS=trace,graph,code`: a line per traced instruction with the symbolic stack, graphs as Python with the
user's lines, what runs in place of a frame: its plan, and functions assembled for a break as `dis` shows them."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.plain_only("about the text of a log")

SCRIPT = """
import torch
import flambeau

def inner(x, scale):
    return x * scale

def whole(a):
    return inner(a, 2.5) + 1

def broken(a):
    b = a + 1
    return b if b.sum() > 0 else a

for f in (whole, broken):
    flambeau.compile(f, backend="eager")(torch.ones(2, 3))
"""


def lines(tmp_path, logs, topic="trace"):
    """What the script prints under a topic."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "FLAMBEAU_LOGS": logs},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [line for line in done.stderr.splitlines() if line.startswith(f"[flambeau {topic}]")]


def test_a_line_per_instruction(tmp_path):
    found = lines(tmp_path, "trace")
    assert any("inner:6 LoadFast scale [f32[2, 3]]" in line for line in found)
    assert any("inner:6 Binary * [f32[2, 3], 2.5]" in line for line in found)
    assert any("whole:9 Binary + [f32[2, 3], 1]" in line for line in found)
    assert any("broken:13 PopJumpIf" in line for line in found), "the instruction that broke the trace"
    assert "broken:13 ReturnValue" in found[-1], "and the last one of its resume function"


def test_nothing_where_it_is_not_asked_for(tmp_path):
    assert lines(tmp_path, "") == []


def test_graphs_read_as_python(tmp_path):
    text = "\n".join(line.removeprefix("[flambeau graph] ") for line in lines(tmp_path, "graph", "graph"))
    assert 'def graph(a: "f32[2, 3]"):\n' in text
    assert "script.py:6 in inner: return x * scale\n" + '    mul: "f32[2, 3]" = a * 2.5\n' in text
    assert '    add: "f32[2, 3]" = mul + 1\n    return add' in text


def test_code_shows_what_is_assembled_for_a_break(tmp_path):
    found = [line.removeprefix("[flambeau code] ") for line in lines(tmp_path, "code,trace", "code")]
    at = next(i for i, line in enumerate(found) if line.startswith("break: data_dependent_jump"))
    sides = [line.split() for line in found[at + 1 : at + 3]]
    assert [side[:4] for side in sides] == [["where", "it", "is", "true:"], ["where", "it", "is", "false:"]]
    for side in sides:
        start = next(i for i, line in enumerate(found) if line.startswith(f"{side[4]} resume function broken"))
        listing = found[start + 1 : start + 12]
        assert any("DELETE_FAST" in line for line in listing), "the prologue"
        assert any("JUMP_FORWARD" in line for line in listing), "to where the user's code goes on"
