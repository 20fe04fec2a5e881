"""The CUDA back end on machines without a GPU: where the daemon's workers find NVRTC, and what is said to be missing.
What it computes is for `flambeau plugin check` on a machine with one."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from support import daemon_pid

import flambeau
import plugins

pytestmark = pytest.mark.plain_only("says what is missing, whatever the frames are")

DRIVER = "no CUDA driver was found ("
NVRTC = "NVRTC, CUDA's run-time compiler, cannot be loaded ("


@pytest.fixture
def place(monkeypatch):
    """A folder in which the dynamic loader looks first: what it finds there of CUDA are no libraries."""
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        for name in ("libcuda.so.1", "libnvrtc.so.12", "libnvrtc.so.13"):
            (Path(folder) / name).write_bytes(b"no library")
        monkeypatch.setenv("LD_LIBRARY_PATH", folder)
        monkeypatch.setenv("FLAMBEAU_CACHE_DIR", f"{folder}/cache")
        yield Path(folder)


def command(*args, status, **env):
    """What `flambeau ARGS` printed."""
    line, env = [sys.executable, "-m", "flambeau", *args], {**os.environ, **env}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_folders_of_packages_beside_torch_are_known():
    folders = [Path(folder) for folder in flambeau.config.library_path]
    assert any([*folder.glob("libnvrtc.so.*")] for folder in folders), folders
    found = "import flambeau, sys; assert 'torch' not in sys.modules; print(*flambeau.config.library_path, sep=':')"

    def told(**env):
        done = subprocess.run([sys.executable, "-c", found], env={**os.environ, **env}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert told() == ":".join(flambeau.config.library_path)
    assert told(FLAMBEAU_LIBRARY_PATH="/one:/two") == "/one:/two"


def test_the_list_says_what_is_missing(place):
    def why(**env):
        rows = json.loads(command("backend", "list", "--json", status=0, **env))["backends"]
        (row,) = (row for row in rows if row["name"] == "cuda")
        assert not row["available"] and row["from"] == "shipped" and "\n" not in row["why"]
        return row["why"]

    # It compiles here, with NVRTC from beside torch, and launches nothing.
    assert "libflambeau_cuda_launch.so is not available: " + DRIVER in why()
    assert f"cannot be used here: plug-in {plugins.half(plugins.PACKAGED, 'cuda', 'launch')}" in command(
        "backend", "list", status=0
    )
    without = why(FLAMBEAU_LIBRARY_PATH="/nonexistent")
    assert "libflambeau_cuda_compile.so is not available: " in without and NVRTC in without


def test_the_check_says_what_is_missing(place):
    file = str(plugins.half(plugins.PACKAGED, "cuda", "compile"))
    said = command("plugin", "check", file, status=1).splitlines()
    assert len(said) == 2 and DRIVER in said[0] and said[1] == "not checked", said


PROGRAM = """
import json, warnings
import torch, flambeau

a = torch.randn(40, 60)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for number in (1, 2):
        f = lambda a: (a * 3).relu() + number
        compiled = flambeau.compile(f, backend="cuda")
        for _ in range(2):
            torch.testing.assert_close(compiled(a), f(a))
print(json.dumps([str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]))
"""


def test_programs_run_as_they_are_with_one_warning(place):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    command("stop", status=0)
    assert done.returncode == 0, done.stderr
    (said,) = json.loads(done.stdout)
    assert DRIVER in said and "\n" not in said


@pytest.fixture
def with_a_device(tmp_path):
    """A folder with the real code generator, and a launch half that says what the real one does beside a GPU."""
    plugins.install(tmp_path, "cuda", "faulty", halves=["launch"])
    plugins.half(tmp_path, "cuda", "compile").write_bytes(
        plugins.half(plugins.PACKAGED, "cuda", "compile").read_bytes()
    )
    return tmp_path


def test_a_daemon_finds_nvrtc_once_a_program_says_where(place, with_a_device):
    def row(**settings):
        """What the daemon's workers say of the back end."""
        settings = {"cache_dir": str(place / "cache"), "plugin_path": [str(with_a_device)], **settings}
        with flambeau.config.patch(**settings):
            pid = daemon_pid()
            rows = json.loads(flambeau._native.admin("backends"))["backends"]
            (row,) = (row for row in rows if row["name"] == "cuda")
            assert daemon_pid() == pid
            return pid, row

    try:
        pid, before = row(library_path=["/nonexistent"])
        assert not before["available"] and NVRTC in before["why"]
        again, after = row()
        assert again == pid
        assert after["available"] and {"sm_80", "sm_90", "sm_100"} <= {*after["targets"]}, after
    finally:
        command("stop", status=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has a GPU here")
def test_the_check_says_that_torch_has_no_gpu(with_a_device):
    said = command("plugin", "check", str(plugins.half(with_a_device, "cuda", "launch")), status=1).splitlines()
    assert len(said) == 2 and said[1] == "not checked", said
    assert "computes in the memory of torch's GPU, and torch " + torch.__version__ in said[0], said
