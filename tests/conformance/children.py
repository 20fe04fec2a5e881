"""Child processes that report events as lines of JSON, with a daemon and a cache of the run's own.

A child gets its job as JSON on standard input and writes its events to the standard output it was started with.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Place:
    """Where one run's children live: socket, cache and working folders; gone with it, and the daemon too."""

    def __init__(self, name: str):
        self.folder = tempfile.mkdtemp(prefix=f"flambeau-{name}-")

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        stop = [sys.executable, "-m", "flambeau", "stop"]
        subprocess.run(stop, env=self.environment(), capture_output=True, timeout=60, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """For children: own socket and cache, equal hashes of strings."""
        paths = [str(ROOT), str(ROOT / "shim/python")]
        return {
            **os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1",
            "XDG_RUNTIME_DIR": self.folder, "FLAMBEAU_CACHE_DIR": f"{self.folder}/cache",
            "FLAMBEAU_DATA_DIR": f"{self.folder}/data",
        }  # fmt: skip

    def events(self, module: str, job: dict[str, Any], silence: float, errors: Any = None) -> Iterator[dict[str, Any]]:
        """The events of one child that runs `module`, in a folder of its own. After `silence` seconds without one it is
        killed. The last event is `{"died": how}` if it ended by itself without `{"end": ...}`."""
        folder = tempfile.mkdtemp(dir=self.folder)
        command = [sys.executable, "-X", "faulthandler", "-m", module]
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as kept:
            given.write(json.dumps(job).encode())
            given.seek(0)
            child = subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, stderr=errors or kept, env=self.environment(), cwd=folder
            )
            assert child.stdout
            how = yield from self._read(child, silence)
            code = child.wait()
            if not errors:
                kept.seek(max(0, kept.seek(0, os.SEEK_END) - 4000))
            text = "" if errors else kept.read().decode(errors="replace")
        shutil.rmtree(folder, ignore_errors=True)
        if how is not None:
            yield {"died": f"{how}exit code {code}", "errors": text}

    def rows(self, worker: str, names: list[str], job: dict[str, Any], silence: float) -> dict[str, dict[str, Any]]:
        """What `worker` reports of each name; who ends its process is a crash, and the others go on in another one."""
        rows: dict[str, dict[str, Any]] = {}
        waiting = names
        while waiting:
            running = waiting[0]
            for event in self.events(worker, {**job, "names": waiting}, silence):
                if "start" in event:
                    running = event["start"]
                elif "done" in event:
                    rows[event.pop("done")] = event
                elif "died" in event:
                    rows[running] = {"status": "crash", "detail": f"{event['died']}: {event['errors'][-300:]}"}
            waiting = [name for name in names if name not in rows]
        return rows

    @staticmethod
    def _read(child: subprocess.Popen[bytes], silence: float) -> Iterator[dict[str, Any]]:
        """Its events; gives back how it died, or `None` if it said that it came to its end."""
        assert child.stdout
        buffer, how = b"", ""
        while True:
            if not select.select([child.stdout], [], [], silence)[0]:
                child.kill()
                how = "silent, "
                break
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                event = json.loads(line)
                yield event
                if "end" in event:
                    child.stdout.close()
                    try:
                        child.wait(10)
                    except subprocess.TimeoutExpired:  # threads or children that a program left
                        child.kill()
                    return None
        child.stdout.close()
        return how


class Voice:
    """How a child reports: its standard output is kept for events, what programs print goes to standard error."""

    def __init__(self) -> None:
        self._events = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, **event: Any) -> None:
        """Reports one event."""
        self._events.write(json.dumps(event) + "\n")


def job() -> Any:
    """The job of this child; its standard input is empty afterwards."""
    given = json.load(sys.stdin)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    return given
