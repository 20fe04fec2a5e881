"""The suite: runs the programs eagerly and compiled, and compares with the table.

Each program runs in processes of its own: eagerly, with flambeau, and (with `--torch`) with `torch.compile`, whose
graphs and breaks stand beside ours. Exit code 1: something is not right, or worse than the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import environment, table

PROGRAMS = Path(__file__).parent / "programs"


def names() -> list[str]:
    """All programs."""
    return sorted(file.stem for file in PROGRAMS.glob("*.py") if file.stem != "__init__")


class Runs:
    """Runs programs in processes, with a daemon and a cache of their own."""

    def __init__(self, limit: float, logs: Path | None):
        self.limit = limit
        self.folder = Path(tempfile.mkdtemp(prefix="flambeau-packages-"))
        self.logs = logs
        shim = str(environment.ROOT / "shim" / "python")
        self.variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([shim, str(environment.ROOT)]),
            "XDG_RUNTIME_DIR": str(self.folder),
            "FLAMBEAU_CACHE_DIR": str(self.folder / "cache"),
            "DDE_BACKEND": "pytorch",
            "HF_HUB_OFFLINE": "1",
            "YOLO_CONFIG_DIR": str(self.folder),
            "MPLCONFIGDIR": str(self.folder),
        }
        if logs:
            self.variables.setdefault("FLAMBEAU_LOGS", "breaks,recompiles")

    def one(self, name: str, way: str) -> dict[str, Any]:
        """The answer of one process."""
        answer = self.folder / f"{name}.{way}.json"
        log = (self.logs or self.folder) / f"{name}.{way}.log"
        command = [environment.PYTHON, "-m", f"{__package__}.worker", name, way, self.folder]
        with log.open("w") as out:
            try:
                code = subprocess.run(
                    command, cwd=environment.ROOT, env=self.variables, stdout=out, stderr=out, timeout=self.limit
                ).returncode
            except subprocess.TimeoutExpired:
                return {"status": "slow", "detail": f"more than {self.limit:.0f} s"}
        if not answer.exists():
            return {"status": "crash", "detail": f"exit code {code}: {log.read_text()[-200:]}"}
        return json.loads(answer.read_text())

    def program(self, name: str, torch: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """What we give, and what `torch.compile` gives if asked for."""
        eager = self.one(name, "eager")
        if eager["status"] != "right":
            return {**eager, "status": "broken", "detail": f"eagerly: {eager.get('detail')}"}, None
        ours, theirs = self.one(name, "flambeau"), self.one(name, "torch") if torch else None
        if "wrong" in (ours["status"], theirs and theirs["status"]) and self.one(name, "exact")["status"] == "right":
            # It may be rounding: judged once more, against float64.
            ours = self.one(name, "flambeau") if ours["status"] == "wrong" else ours
            theirs = self.one(name, "torch") if theirs and theirs["status"] == "wrong" else theirs
        return ours, theirs

    def close(self) -> None:
        """Stops the daemon."""
        stop = [environment.PYTHON, "-m", "flambeau", "stop"]
        subprocess.run(stop, env=self.variables, cwd=environment.ROOT, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def main(argv: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="cargo xtask conformance packages", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs; all by default")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--torch", action="store_true", help="run torch.compile too, for its figures in the table")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--logs", type=Path, help="keep what the processes print, with breaks, in this folder")
    parser.add_argument("--limit", type=float, default=240, help="seconds a process may take")
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(names())
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    environment.set_up()
    known, found, seconds, failures = table.load(), {}, {}, {}
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    runs = Runs(options.limit, options.logs and options.logs.resolve())

    def run(name: str) -> None:
        theirs = known.get(name, {}).get("torch")
        ours, fresh = runs.program(name, options.torch)
        seconds[name] = ours.get("seconds", 0)
        found[name] = table.row(ours, fresh or theirs)
        failures[name] = table.worse(name, found[name], known)
        print(f"{failures[name] or 'right'}: {name} ({seconds[name]} s)", file=sys.stderr, flush=True)

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(run, options.names or names()))
    finally:
        runs.close()
    found = dict(sorted(found.items()))
    failures = {name: why for name, why in sorted(failures.items()) if why}
    if options.update:
        kept = {name: row for name, row in known.items() if name in names()}
        table.store({**kept, **found})
    if options.json:
        print(json.dumps({"rows": found, "failures": failures, "seconds": seconds}, indent=1, sort_keys=True))
    else:
        print("\n".join([*table.lines(found, seconds), *(f"{name}: {why}" for name, why in failures.items())]))
    return 1 if failures else 0
