"""One daemon and one cache serve processes of several versions of Python: each finds what its own version compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

pytestmark = [pytest.mark.plain_only("runs in processes of its own"), pytest.mark.slow]

PROGRAM = """
import json, sys, torch, flambeau

def inner(x):
    flambeau.graph_break()
    return x * 2

x = torch.arange(3.0)
assert torch.equal(flambeau.compile(lambda x: inner(x + 1) - 1)(x), 2 * x + 1)
counts = flambeau.counters()
if {"no_extension", "daemon_refused"} & set(counts["eager_fallbacks"]):
    sys.exit(3)
assert counts["graphs"] == 2 and not counts["eager_fallbacks"], counts
print(json.dumps([list(sys.version_info[:2]), counts["frames_traced"]]))
"""
ROOT = Path(__file__).parents[2]
OTHERS = [
    folder / "bin/python"
    for folder in (ROOT / ".venv", *sorted(ROOT.glob(".venv-3.*")))
    if Path(sys.prefix).resolve() != folder.resolve() and (folder / "bin/python").exists()
]


@pytest.mark.skipif(not OTHERS, reason="there is no environment of another version")
def test_a_cache_serves_no_other_version(tmp_path):
    folder = Path(flambeau.__file__).parents[1]
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"),
        "XDG_RUNTIME_DIR": str(runtime),
    }
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)

    def traced(python):
        done = subprocess.run([python, script], env=environment, capture_output=True, text=True, timeout=120)
        if done.returncode == 3:
            pytest.skip(f"{python}: no extension, or one of another build")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    try:
        for python in (sys.executable, *OTHERS):
            version, first = traced(python)
            assert (first, traced(python)) == (2, [version, 0]), version
        assert traced(sys.executable) == [list(sys.version_info[:2]), 0]
    finally:
        subprocess.run([sys.executable, "-m", "flambeau", "stop"], env=environment, capture_output=True, timeout=60)
