"""Recordings of real compiles, replayed without model, weights or torch: the same graph and guards, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import models
import pytest

pytestmark = pytest.mark.plain_only("runs commands in processes of their own")

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
    """Each model's recording. A file's name ends in the number of its compile, which gives the order."""
    folder = tmp_path_factory.mktemp("recordings")
    script = folder / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(Path(models.__file__).parent)!r})\n{SCRIPT}")
    flambeau("record", "--into", folder, script, *models.CASES)
    files = sorted(folder.glob("*.flrec"), key=lambda file: int(file.stem.rsplit("-", 1)[1]))
    return dict(zip(models.CASES, files, strict=True))


@pytest.mark.parametrize("name", list(models.CASES))
def test_replay_gives_the_same_graph_and_guards(name, recordings):
    [replay] = json.loads(flambeau("--json", "replay", recordings[name]))["replays"]
    assert replay["same"] is True
    assert replay["difference"] is None
    assert "placeholder" in replay["graph"]
    assert len(replay["guards"]) > (5 if name == "seawater" else 50)


def test_a_damaged_recording_is_an_error(recordings, tmp_path):
    data = bytearray(recordings["seawater"].read_bytes())
    data[len(data) // 2] ^= 1
    damaged = tmp_path / "damaged.flrec"
    damaged.write_bytes(data)
    flambeau("replay", damaged, expect=1)
