"""`FLAMBEAU_LOGS=trace`: one line per traced instruction with the symbolic stack, also of a trace that breaks."""

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


def lines(tmp_path, logs):
    """What the script prints under the topic `trace`."""
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
    return [line for line in done.stderr.splitlines() if line.startswith("[flambeau trace]")]


def test_a_line_per_instruction(tmp_path):
    found = lines(tmp_path, "trace")
    assert any("inner:6 Binary { kind: Multiply" in line and "[F32[2, 3], Float(2.5)]" in line for line in found)
    assert any("whole:9 Binary { kind: Add" in line and "[F32[2, 3], Int(1)]" in line for line in found)
    assert any("broken:13 PopJumpIf" in line for line in found), "the instruction that broke the trace"
    assert "broken:13 ReturnValue" in found[-1], "and the last one of its resume function"


def test_nothing_where_it_is_not_asked_for(tmp_path):
    assert lines(tmp_path, "") == []
