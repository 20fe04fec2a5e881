"""Each pytest worker has a cache and a daemon of its own, gone when it ends, unless a folder for them is given."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_given = os.environ.get("FLAMBEAU_TEST_FOLDER")
_folder = _given or tempfile.mkdtemp(prefix="flambeau-test-")
os.environ["FLAMBEAU_CACHE_DIR"] = f"{_folder}/cache"
os.environ["FLAMBEAU_DATA_DIR"] = f"{_folder}/data"
os.environ["XDG_RUNTIME_DIR"] = _folder
# For processes that tests start in other folders.
os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in sys.path if p.endswith("shim/python"))
sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(ROOT / "tests"))

import torch  # noqa: E402

import flambeau  # noqa: E402

torch.set_num_threads(2)


def pytest_configure():
    """The mode is known, and no test is loaded yet."""
    import mode

    mode.start()


@pytest.fixture(autouse=True)
def fresh():
    """Every test starts with no compiled frames in this process."""
    import mode

    flambeau.reset()
    with mode.test():
        yield
    flambeau.reset()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """What a mode asks of a test is part of it. No test passes by a fallback that hides a mistake of the compiler."""
    import internal
    import mode

    result = yield
    mode.after()
    if pyfuncitem.get_closest_marker("provokes_internal") is None:
        found = internal.counted(flambeau.counters())
        assert not found, f"right only by a fallback: {found}"
    if mode.MODE == "plain" and pyfuncitem.get_closest_marker("passes_recompile_limit") is None:
        # Such a test compares eager code with eager code.
        limited = flambeau.counters()["eager_fallbacks"].get("recompile_limit", 0)
        assert not limited, f"past the recompile limit, {limited} calls ran eagerly: call `flambeau.reset()` in between"
    return result


@pytest.fixture(params=os.environ.get("FLAMBEAU_TEST_BACKENDS", "eager,cpu").split(","))
def backend(request):
    """Both ways a graph runs: op by op, and lowered to kernels; one of them where `--flambeau-backends` says so."""
    return request.param


def pytest_unconfigure():
    """Stops the daemon and removes its folder."""
    import subprocess

    if _given:
        return
    subprocess.run([sys.executable, "-m", "flambeau", "stop"], capture_output=True, timeout=60, check=False)
    shutil.rmtree(_folder, ignore_errors=True)
