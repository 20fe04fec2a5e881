"""A cache and a daemon of the tests' own, gone when they end; where other tests of this process have them, those."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_folder = None
if "FLAMBEAU_CACHE_DIR" not in os.environ:
    _folder = tempfile.mkdtemp(prefix="flambeau-test-")
    os.environ["FLAMBEAU_CACHE_DIR"] = f"{_folder}/cache"
    os.environ["FLAMBEAU_DATA_DIR"] = f"{_folder}/data"
    os.environ["XDG_RUNTIME_DIR"] = _folder
for _path in (ROOT / "examples", ROOT / "tests"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))


def pytest_unconfigure():
    """Stops the daemon and removes its folder."""
    if _folder:
        subprocess.run([sys.executable, "-m", "flambeau", "stop"], capture_output=True, timeout=60, check=False)
        shutil.rmtree(_folder, ignore_errors=True)
