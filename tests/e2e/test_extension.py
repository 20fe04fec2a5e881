"""What the package does where it has no extension for the running Python: all runs as it is, with one warning."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

pytestmark = pytest.mark.plain_only("compiles nothing")

PROGRAM = """
import copy, json, pickle, sys, warnings
import torch, flambeau

warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    @flambeau.compile
    def f(x, *, by=2):
        "Doubles."
        flambeau.graph_break()
        return x * by

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = torch.nn.Linear(2, 2)

        @flambeau.compile
        def forward(self, x):
            return self.part(x)

    net = Net()
    view, x = flambeau.compile(net), torch.ones(2)
    flambeau.mark_dynamic(x, 0)
    with flambeau.disable_nested_graph_breaks(), flambeau.error_on_graph_break():
        same = [torch.equal(f(x, by=3), x * 3), torch.equal(view(x), net(x)), copy.deepcopy(f) is f]
    same += [torch.equal(copy.deepcopy(view)(x), net(x)), f.__doc__ == "Doubles.", pickle.loads(pickle.dumps(f)) is f]
    found = flambeau.explain(f)(x).data
report = {"same": same, "warnings": [str(w.message) for w in caught], "counters": flambeau.counters(), "found": found}
print(json.dumps({**report, "status": flambeau.status(), "backends": flambeau.list_backends()}))
"""


@pytest.fixture
def package(tmp_path):
    """A folder with the package, but for the extension."""
    package = tmp_path / "flambeau"
    shutil.copytree(Path(flambeau.__file__).parent, package, ignore=shutil.ignore_patterns("*.so", "_bin", "_plugins"))
    return tmp_path


def run(folder, *command):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_everything_runs_as_it_is(package):
    (package / "flambeau/_native.cpython-27-x86_64-linux-gnu.so").touch()
    process = run(package, "-c", PROGRAM)
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert all(report["same"]), report["same"]
    [warning] = report["warnings"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"no extension for CPython {version}; it has: cpython-27-x86_64-linux-gnu" in warning
    assert report["counters"]["graphs"] == 0 and report["counters"]["eager_fallbacks"]["no_extension"] > 0
    assert report["found"]["frames"] == [] and report["status"] == {"running": False}


def test_a_broken_extension_is_named(package):
    suffix = next(Path(flambeau.__file__).parent.glob(f"_native.cpython-3{sys.version_info.minor}-*")).name
    (package / "flambeau" / suffix).write_bytes(b"\x7fELF rubbish")
    process = run(package, "-c", "import torch, flambeau; print(flambeau.compile(lambda x: x + 1)(torch.ones(1)))")
    assert (process.returncode, process.stdout) == (0, "tensor([2.])\n"), process.stderr
    assert process.stderr.count("RuntimeWarning: flambeau runs code uncompiled: its extension cannot be loaded") == 1


def test_the_doctor_names_the_mode(package):
    process = run(package, "-m", "flambeau", "doctor", "--json")
    checks = {check["check"]: check for check in json.loads(process.stdout)["checks"]}
    [mode] = [check for name, check in checks.items() if name.startswith("mode")]
    assert process.returncode == 1 and not mode["ok"] and "no extension" in mode["remedy"], mode
