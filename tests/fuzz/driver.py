"""Runs many programs: splits seeds into batches, one child process each; survives crashes and hangs; shrinks failures."""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .check import GAVE_UP

ROOT = Path(__file__).parents[2]
Given = tuple[int, str | None]  # a program: its seed, and its source where that is not made from the seed
SILENCE = 90.0  # seconds after which a child that says nothing is a hang


@dataclass
class Options:
    """What to run."""

    seeds: list[int]
    modes: list[str]
    backends: str = "alternate"
    device: str = "cpu"
    jobs: int = 1
    batch: int = 400
    seconds: float = 3600.0
    shrink: int = 8
    shrink_seconds: float = 40.0
    unshrunk: list[str] = field(default_factory=list)  # kinds of failures not to shrink
    breaks: float | None = None  # how often programs break; by seed if `None`
    files: list[str] = field(default_factory=list)  # programs to run besides, named `SEED_what.txt`


@dataclass
class Report:
    """What came of it; `json()` of `data`."""

    programs: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class Run:
    """One run with a cache and a daemon of its own."""

    def __init__(self, options: Options, say=print):
        self.options, self.say, self.report = options, say, Report()
        self.folder = tempfile.mkdtemp(prefix="flambeau-fuzz-")
        self.until = time.time() + options.seconds
        self.lock = threading.Lock()
        self.started = time.time()
        self.limited: set[int] = set()
        """Seeds of programs that reached a limit of compiles: which frames come first depends on those others stored."""

    def environment(self, cache: str = "cache") -> dict[str, str]:
        """For children: own socket and cache, equal hashes of strings."""
        paths = [str(ROOT), *[p for p in sys.path if p.endswith("shim/python")], os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "XDG_RUNTIME_DIR": self.folder, "FLAMBEAU_CACHE_DIR": f"{self.folder}/{cache}", "FLAMBEAU_DATA_DIR": f"{self.folder}/data", "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    def all(self) -> Report:
        """Every mode over all seeds, then the shrinking."""
        try:
            for mode in self.options.modes:
                self.mode(mode)
            self.shrink()
        finally:
            for cache in ("cache", "warm", "shrink"):
                stop = [sys.executable, "-m", "flambeau", "stop"]
                subprocess.run(stop, env=self.environment(cache), capture_output=True, timeout=60, check=False)
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.report

    def mode(self, mode: str) -> None:
        """All programs in one mode, `jobs` children at a time."""
        started, pending = time.time(), queue.Queue[tuple[list[Given], str]]()
        from .program import source

        breaks = self.options.breaks
        programs: list[Given] = [(s, None if breaks is None else source(s, breaks)) for s in self.options.seeds]
        programs += [(int(Path(f).name.partition("_")[0]), Path(f).read_text()) for f in self.options.files]
        for first in range(0, len(programs), self.options.batch):
            batch = programs[first : first + self.options.batch]
            if self.options.backends == "alternate":
                for k, backend in enumerate(("eager", "cpu")):
                    pending.put(([p for p in batch if p[0] % 2 == k], backend))
            else:
                for backend in self.options.backends.split(","):
                    pending.put((batch, backend))
        threads = [threading.Thread(target=self._serve, args=(mode, pending)) for _ in range(self.options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.report.seconds[mode] = round(time.time() - started, 1)

    def _serve(self, mode: str, pending: queue.Queue[tuple[list[Given], str]]) -> None:
        while time.time() < self.until:
            try:
                programs, backend = pending.get_nowait()
            except queue.Empty:
                return
            tried = self.batch(mode, programs, backend)
            if mode == "warm":
                self.batch(mode, tried, backend, second=True)

    def batch(self, mode: str, programs: list[Given], backend: str, second: bool = False) -> list[Given]:
        """One child, and another from after the program that killed it: the programs that were not too slow for a try."""
        tried: list[Given] = []
        while programs and time.time() < self.until:
            job = {"programs": programs, "mode": mode, "backend": backend, "device": self.options.device}
            job |= {"until": self.until, "second": second, "limited": [s for s, _ in programs if s in self.limited]}
            running, survived, done, note = False, False, 0, ""
            for event in self.child(job, "warm" if mode == "warm" else "cache"):
                if "start" in event:
                    running, survived = True, False
                elif "survived" in event:
                    survived = True
                elif "done" in event:
                    self.count(mode)
                    if event["tried"]:
                        tried.append(programs[event["done"]])
                    if event["limited"]:
                        self.limited.add(programs[event["done"]][0])
                    if event["failure"]:
                        self.fail(event["failure"])
                    running, done = False, event["done"] + 1
                elif "end" in event:
                    with self.lock:
                        for name, number in event["end"].items():
                            self.report.counts[name] = self.report.counts.get(name, 0) + number
                    return tried
                elif "died" in event:
                    note = event["died"]
            if not running:
                self.fail(self.failure("crash", f"a child died outside programs: {note}", (-1, ""), mode, backend))
                return tried
            self.count(mode)
            silent = "silent" in note
            if (endless := f"exit code {GAVE_UP}:" in note) or not (survived or silent):
                name = "endless" if endless else "crashed eagerly"
                self.report.counts[name] = self.report.counts.get(name, 0) + 1
            else:
                self.fail(self.failure("hang" if silent else "crash", note, programs[done], mode, backend))
            programs = programs[done + 1 :]
        return tried

    def failure(self, kind: str, detail: str, program: Given, mode: str, backend: str) -> dict[str, Any]:
        """A failure that the child could not report itself."""
        seed, source = program
        return {"kind": kind, "detail": detail, "seed": seed, "mode": mode, "backend": backend, "source": source, "call": 0}  # fmt: skip

    def child(self, job: dict[str, Any], cache: str):
        """The events of a child; the last one says how it died if it gave no end."""
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.worker"]
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
            given.write(json.dumps(job).encode())
            given.seek(0)
            child = subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, stderr=errors, env=self.environment(cache), cwd=ROOT
            )
            assert child.stdout
            buffer, silent = b"", False
            while True:
                if not select.select([child.stdout], [], [], SILENCE + job.get("seconds", 0))[0]:
                    child.kill()
                    silent = True
                data = os.read(child.stdout.fileno(), 1 << 16)
                if not data:
                    break
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    if line.startswith(b"{"):
                        yield json.loads(line)
            code = child.wait()
            errors.seek(0)
            text = errors.read().decode(errors="replace")
        yield {"died": f"{'silent, ' if silent else ''}exit code {code}: {text[-1500:]}"}

    def count(self, mode: str) -> None:
        """One more program; a line of progress now and then."""
        with self.lock:
            number = self.report.programs[mode] = self.report.programs.get(mode, 0) + 1
            if number % 500 == 0:
                each = (time.time() - self.started) / sum(self.report.programs.values()) * 1000
                self.say(
                    f"{mode}: {number} programs, {len(self.report.failures)} failures, {each:.0f} ms each", flush=True
                )

    def fail(self, failure: dict[str, Any]) -> None:
        """Notes a failure."""
        with self.lock:
            self.report.failures.append(failure)
        self.say(f"FAIL {failure['mode']} seed {failure['seed']} {failure['backend']} {failure['kind']}: {failure['detail'][:200]}", flush=True)  # fmt: skip

    def shrink(self) -> None:
        """Shrinks some failures of each kind and prints them."""
        from . import program

        done: dict[str, int] = {}
        for failure in sorted(self.report.failures, key=lambda f: len(f["source"] or "")):
            if failure["seed"] < 0 or failure["kind"] in ("warm", "hang", *self.options.unshrunk):
                continue
            kind = failure["kind"] + failure["mode"]
            done[kind] = done.get(kind, 0) + 1
            if done[kind] > self.options.shrink:
                continue
            failure["source"] = failure["source"] or program.source(failure["seed"])
            job = {"shrink": failure, "device": self.options.device, "seconds": self.options.shrink_seconds}
            shrunk = next((e["shrunk"] for e in self.child(job, "shrink") if "shrunk" in e), None)
            failure["shrunk"] = shrunk
            self.say("-" * 20, f"seed {failure['seed']} {failure['mode']} {failure['backend']}", flush=True)
            if shrunk:
                self.say(f"{shrunk['kind']}: {shrunk['detail'][:600]}\n{shrunk['source']}", flush=True)
            else:
                self.say(f"not alone: {failure['kind']}: {failure['detail'][:600]}", flush=True)
