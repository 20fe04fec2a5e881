"""What `import flambeau` says where the package has no extension for the running Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

pytestmark = pytest.mark.plain_only("compiles nothing")


def imported(folder):
    """The output of a process that imports the package of this folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", "import flambeau"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_message_names_this_python_and_those_that_would_do(tmp_path):
    package = tmp_path / "flambeau"
    package.mkdir()
    for file in Path(flambeau.__file__).parent.glob("*.py"):
        shutil.copy(file, package)
    (package / "_native.cpython-27-x86_64-linux-gnu.so").touch()
    process = imported(tmp_path)
    message = process.stderr.splitlines()[-1]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert process.returncode == 1
    assert f"no extension for CPython {version}" in message and "it has: cpython-27-x86_64-linux-gnu" in message
