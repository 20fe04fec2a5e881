"""The command `flambeau`, as a user types it: text, JSON, and exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as package

pytestmark = pytest.mark.plain_only("runs commands in processes of their own")

SCRIPT = """
import sys, torch

@torch.compile
def whole(a):
    return torch.relu(a).sum(-1)

def broken(a):
    return a if a.sum() > 0 else -a

print(whole(torch.ones(3, 4)).tolist(), sys.argv[1:])
print(torch.compile(broken)(torch.ones(2)).tolist())
"""


@pytest.fixture
def flambeau(tmp_path):
    """Runs `flambeau ARGS` on a cache and a daemon of its own; gives what it printed."""
    tmp_path.chmod(0o700)
    (tmp_path / "user.py").write_text(SCRIPT)
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"), "XDG_RUNTIME_DIR": str(tmp_path)}

    def run(*args, status=0):
        command = [sys.executable, "-m", "flambeau", *args]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    yield run
    run("stop")


def test_installed(tmp_path):
    """`cargo xtask` installs the package of this folder into its environment: nothing has to be set to find it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def says(*command):
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert says(Path(sys.executable).with_name("flambeau"), "--version").startswith("flambeau ")
    assert says(sys.executable, "-c", "import flambeau; print(flambeau.__file__)") == package.__file__


def test_life(flambeau):
    assert not json.loads(flambeau("status", "--json"))["running"]
    flambeau("start")
    status = json.loads(flambeau("--json", "status"))
    assert status["running"] and status["pid"] > 0
    assert f"pid: {status['pid']}" in flambeau("status")
    assert "listening" in flambeau("logs")
    assert json.loads(flambeau("stop", "--json"))["stopped"]
    assert not json.loads(flambeau("status", "--json"))["running"]


def test_scripts_and_the_cache(flambeau):
    assert flambeau("run", "user.py", "x", "--json").splitlines()[0] == "[4.0, 4.0, 4.0] ['x', '--json']"
    text = flambeau("explain", "user.py")
    assert "torch.relu(a)" in text and "graph break: data_dependent_jump" in text and 'user.py", line 9' in text
    report = json.loads(flambeau("explain", "--json", "user.py").splitlines()[-1])
    assert [c["name"] for c in report["compiled"]] == ["whole", "broken"]
    assert report["counters"]["cache"]["hits"]["daemon"] == 3, "a break's two sides have a frame each"
    stats = json.loads(flambeau("cache", "stats", "--json"))
    assert stats["frames"] >= 1
    assert "never compiled" in flambeau("cache", "why")
    flambeau("cache", "clear")
    assert json.loads(flambeau("cache", "stats", "--json"))["frames"] == 0


def test_recordings_are_made_of_what_is_cached_too_and_replay(flambeau, tmp_path):
    flambeau("run", "user.py")
    flambeau("record", "--into", "kept", "user.py")
    files = sorted(str(f) for f in (tmp_path / "kept").iterdir())
    assert len(files) == 3, "one of them of a resume function"
    flambeau("stop")
    assert flambeau("replay", *files).count("same graph and guards") == 3
    assert all(r["same"] for r in json.loads(flambeau("replay", "--json", *files))["replays"])


def test_version(flambeau):
    assert flambeau("--version").startswith("flambeau ")


def test_health(flambeau):
    checks = json.loads(flambeau("doctor", "--json"))["checks"]
    assert all(c["ok"] for c in checks)
    # Guards would be right without it, but slower.
    assert "tensors are read in place" in [c["check"] for c in checks]
    assert "cpu" in flambeau("backend", "list")


def test_mistakes_are_told(flambeau):
    flambeau("run", "missing.py", status=1)
    flambeau("nonsense", status=2)
    flambeau("replay", "missing.json", status=1)
