"""Running measurements in fresh processes over chosen cache folders, and stopping daemons between them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass
class Caches:
    """Empty caches for both compilers, and a socket folder, gone at exit."""

    folder: tempfile.TemporaryDirectory = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="flambeau-bench-")
    )

    @property
    def environment(self) -> dict[str, str]:
        """For a process that uses these caches."""
        root = self.folder.name
        return {
            **os.environ,
            "FLAMBEAU_CACHE_DIR": f"{root}/flambeau",
            "FLAMBEAU_DATA_DIR": f"{root}/data",
            "XDG_RUNTIME_DIR": root,
            "TORCHINDUCTOR_CACHE_DIR": f"{root}/inductor",
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        }

    def call(self, model: str, compiler: str, backend: str, *options: str) -> dict[str, Any]:
        """What `first_call.py` reports."""
        return self.run("first_call.py", model, compiler, backend, *options)

    def run(self, script: str, *arguments: str) -> dict[str, Any]:
        """What a script of this folder reports, in a process of its own."""
        command = [sys.executable, str(HERE / script), *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def stop_daemon(self) -> None:
        """Ends the daemon of these caches, if one runs."""
        command = [sys.executable, "-m", "flambeau", "stop"]
        subprocess.run(command, env=self.environment, capture_output=True, check=False, timeout=60)

    def close(self) -> None:
        """Ends the daemon and removes the folder."""
        self.stop_daemon()
        self.folder.cleanup()
