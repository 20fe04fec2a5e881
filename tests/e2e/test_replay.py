"""Recordings of real compiles, replayed without model, weights or torch: the same graph and guards, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import models
import pytest

SCRIPT = """
import sys
import torch
import models

torch.set_num_threads(2)
for name in sys.argv[1:]:
    fn, args = models.build(name, 1)
    if name == "seawater":
        args = tuple(a[:1000] for a in args)
    with torch.no_grad():
        torch.compile(fn, backend="eager")(*args)
"""


def flambeau(*arguments, expect=0):
    """Runs the command line."""
    command = [sys.executable, "-m", "flambeau", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expect, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """One folder of recordings per model."""
    folder = tmp_path_factory.mktemp("recordings")
    script = folder / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(Path(models.__file__).parent)!r})\n{SCRIPT}")
    for name in models.CASES:
        flambeau("record", "--into", folder / name, script, name)
    return folder


@pytest.mark.parametrize("name", list(models.CASES))
def test_replay_gives_the_same_graph_and_guards(name, recordings):
    files = sorted((recordings / name).glob("*.flrec"))
    assert len(files) == 1
    [replay] = json.loads(flambeau("--json", "replay", *files))["replays"]
    assert replay["same"] is True
    assert replay["difference"] is None
    assert "placeholder" in replay["graph"]
    assert len(replay["guards"]) > (5 if name == "seawater" else 50)


def test_a_damaged_recording_is_an_error(recordings, tmp_path):
    [file] = (recordings / "seawater").glob("*.flrec")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    damaged = tmp_path / "damaged.flrec"
    damaged.write_bytes(data)
    flambeau("replay", damaged, expect=1)
