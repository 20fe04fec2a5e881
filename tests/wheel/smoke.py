"""Tries an installed wheel as a user would: run by the Python of an environment that has flambeau, torch and what torch
needs, or flambeau alone. The argument is the mode that the wheel must run in there, as `flambeau doctor` names it.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

CLI = str(Path(sys.executable).with_name("flambeau"))

MODEL = """
import json, warnings
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    import flambeau, torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).eval()
    compiled, x = {compile}, torch.randn(8, 64)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x))
ours = [str(w.message) for w in caught if "flambeau" in str(w.message)]
print(json.dumps(dict(flambeau.counters(), warnings=ours, file=flambeau.__file__)))
"""
OURS = MODEL.format(compile="flambeau.compile(model)")
TORCHS = MODEL.format(compile="torch.compile(model, backend='flambeau')")

HOOKS = "import flambeau, json; print(json.dumps(hasattr(flambeau._native, '_testing')))"

# `start` is what `compile` calls for a function once it has imported torch.
WITHOUT_TORCH = """
import warnings
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    import flambeau
    from flambeau._compile import Options

    doubled = Options(fullgraph=False, dynamic=None, backend=None, mode=None).start(lambda x: 2 * x)
    assert [doubled(3), doubled(4)] == [6, 8]
    try:
        flambeau.compile(len)
    except ModuleNotFoundError as error:
        assert error.name == "torch", error
    else:
        raise AssertionError("compile took no notice that there is no torch")
[warning] = [str(w.message) for w in caught]
assert warning.startswith("flambeau runs code uncompiled: this installation has no extension"), warning
assert flambeau.counters()["eager_fallbacks"] == {"no_extension": 2}
"""


def main(mode):
    """Runs all checks in a folder, with a daemon and a cache that nothing else uses."""
    assert requires("flambeau") == ["torch>=2.11"], requires("flambeau")
    with tempfile.TemporaryDirectory(prefix="flambeau-wheel-") as folder:
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": folder}

        def run(*command, status=0):
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=100)
            assert done.returncode == status, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
            return done.stdout

        def counters(program):
            counts = json.loads(run(sys.executable, "-c", program).splitlines()[-1])
            assert Path(sys.prefix) in Path(counts["file"]).parents, "the installed package is not the one in use"
            return counts

        assert "explain" in run(CLI, "--help")
        try:
            (full if mode == "full" else wrapper_only)(run, counters)
        finally:
            subprocess.run([CLI, "stop"], env=environment, capture_output=True, timeout=100)


def full(run, counters):
    """Calls are compiled, a second process finds them in the cache, and the daemon ends when told."""
    first, second, torchs = counters(OURS), counters(OURS), counters(TORCHS)
    assert first["frames_traced"] == first["graphs"] == 1, first
    assert (second["frames_traced"], second["graphs"], second["cache"]["hits"]["daemon"]) == (0, 1, 1), second
    assert torchs["graphs"] == 1, torchs
    for counts in (first, second, torchs):
        assert not (counts["eager_fallbacks"] or counts["graph_breaks"] or counts["warnings"]), counts
    assert not json.loads(run(sys.executable, "-c", HOOKS)), "the wheel's extension has what tests ask for"
    plugins = list(Path(first["file"]).with_name("_plugins").iterdir())
    assert plugins and all(b"FLMBSEA1" in plugin.read_bytes()[-40:] for plugin in plugins), "plug-ins without a seal"
    shipped = {plugin.name.split("_")[1] for plugin in plugins}
    assert shipped == {"cpu", "cuda", "opencl"}, shipped
    assert "check: mode full" in run(CLI, "doctor")
    assert json.loads(run(CLI, "status", "--json"))["running"]
    run(CLI, "stop")
    assert not json.loads(run(CLI, "status", "--json"))["running"]


def wrapper_only(run, counters):
    """Calls run as plain Python, with one warning."""
    if find_spec("torch"):
        counts = counters(OURS)
        assert counts["graphs"] == 0 and counts["eager_fallbacks"] == {"no_extension": 2}, counts
        [warning] = counts["warnings"]
        assert "wheels with one are for Linux and CPython 3.11, " in warning, warning
    else:
        run(sys.executable, "-c", WITHOUT_TORCH)
    assert "check: mode wrapper-only" in run(CLI, "doctor", status=1)
    run(CLI, "status", status=1)


main(sys.argv[1])
