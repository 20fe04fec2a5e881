"""`flambeau plugin check`: runs a plug-in through all cases, in a process that it may end, and reports on each form."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flambeau._config import config

#: After so many ends of the process the rest is left out: each costs a start of Python and torch.
MOST_ENDS = 8

#: Longest time for the imports of torch and flambeau, in seconds.
START = 120.0

HALVES = ("_compile.so", "_launch.so")


@dataclass
class Form:
    """Counts of one form of kernel, and what is wrong with it."""

    passed: int = 0
    failed: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What became of a plug-in."""

    compile: str
    launch: str
    said: dict[str, Any] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)
    #: Why it could not be checked at all.
    unusable: str = ""
    left_out: int = 0

    def count(self, what: str) -> int:
        """Cases over all forms: "passed", "failed" or "refused"."""
        return sum(getattr(form, what) for form in self.forms.values())

    @property
    def ok(self) -> bool:
        """Nothing failed, and something passed."""
        return not self.unusable and not self.left_out and not self.count("failed") and self.count("passed") > 0

    def json(self) -> dict[str, Any]:
        """For programs."""
        half = self.said.get("launch", {})
        return {
            "compile": self.compile,
            "launch": self.launch,
            "plugin": {key: half.get(key) for key in ("name", "version", "kernel_ir", "devices")},
            "ok": self.ok,
            "unusable": self.unusable,
            "passed": self.count("passed"),
            "failed": self.count("failed"),
            "refused": self.count("refused"),
            "left_out": self.left_out,
            "forms": {name: vars(form) for name, form in self.forms.items()},
        }

    def __str__(self) -> str:
        if self.unusable:
            return f"{self.unusable}\nnot checked"
        half = self.said["launch"]
        lines = [f"{half['name']} {half['version']}, on {half['devices'][0]['name']}"]
        for name, form in self.forms.items():
            counts = ((form.passed, "passed"), (form.failed, "failed"), (form.refused, "refused"))
            lines.append(f"{name:32} {', '.join(f'{n} {what}' for n, what in counts if n)}")
            lines += [f"    failed: {sentence}" for sentence in form.failures]
            lines += [f"    refused: {sentence}" for sentence in form.refusals]
        lines.append(f"{self.count('passed')} passed, {self.count('failed')} failed, {self.count('refused')} refused")
        if self.left_out:
            lines.append(f"{self.left_out} were left out: the plug-in ended its process {MOST_ENDS} times")
        return "\n".join(lines)


def halves(file: str) -> tuple[str, str]:
    """Both files of a plug-in, from either."""
    path = Path(file).absolute()
    for suffix in HALVES:
        if path.name.startswith("libflambeau_") and path.name.endswith(suffix):
            stem = path.name.removesuffix(suffix)
            return str(path.with_name(stem + HALVES[0])), str(path.with_name(stem + HALVES[1]))
    raise ValueError(
        f"{path.name} is not named as plug-ins are: libflambeau_NAME_compile.so or libflambeau_NAME_launch.so"
    )


def check(file: str, pattern: str = "", timeout: float = 30.0) -> Report:
    """Runs all cases whose name holds `pattern`. One may take `timeout` seconds."""
    report = Report(*halves(file))
    progress = Progress()
    first, ends, total = 0, 0, 0
    while True:
        with Worker(report.compile, report.launch, first, pattern) as worker:
            begun: dict[str, Any] | None = None
            opened = worker.line(START) and worker.line(timeout)
            if opened is None or "opened" not in opened:
                report.unusable = worker.end("while it was opened") if opened is None else opened["unusable"]
                break
            report.said, total = opened["opened"], opened["cases"]
            while (line := worker.line(timeout)) is not None:
                if "begin" in line:
                    begun = line
                    progress.show(line["begin"], total, f"{line['form']}, {line['about']}")
                elif begun is not None:
                    note(report, begun, line["refused"], line["failed"])
                    begun, first = None, line["end"] + 1
            if begun is None:
                if first < total:
                    report.unusable = worker.end("between two kernels")
                break
            note(report, begun, None, worker.end("at this kernel"))
            first, ends = begun["begin"] + 1, ends + 1
        if first >= total:
            break
        if ends == MOST_ENDS:
            report.left_out = total - first
            break
    progress.clear()
    return report


def note(report: Report, begun: dict[str, Any], refused: str | None, failed: str | None) -> None:
    """Counts one case. Of refusals with the same reason one is listed."""
    form = report.forms.setdefault(begun["form"], Form())
    if failed is not None:
        form.failed += 1
        form.failures.append(f"{begun['about']}: {failed}")
    elif refused is not None:
        form.refused += 1
        if refused not in form.refusals:
            form.refusals.append(refused)
    else:
        form.passed += 1


class Worker:
    """A process that checks, and the lines that it writes."""

    def __init__(self, compile_half: str, launch_half: str, first: int, pattern: str) -> None:
        ours, theirs = os.pipe()
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self.ours, self.rest, self.timed_out = ours, b"", 0.0
        command = [sys.executable, "-m", "flambeau._check_worker", compile_half, launch_half, str(first), pattern]
        self.process = subprocess.Popen(
            [*command, str(theirs)],
            stdin=subprocess.DEVNULL,
            stdout=self.printed,
            stderr=self.printed,
            pass_fds=[theirs],
            env={**os.environ, **told()},
        )
        os.close(theirs)

    def line(self, timeout: float) -> dict[str, Any] | None:
        """The next one; `None` when there is none any more, or in this time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.ours, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                if not selector.select(timeout):
                    self.timed_out = timeout
                    return None
                read = os.read(self.ours, 1 << 16)
                if not read:
                    return None
                self.rest += read
        line, _, self.rest = self.rest.partition(b"\n")
        parsed: dict[str, Any] = json.loads(line)
        return parsed

    def end(self, when: str) -> str:
        """How the process ended, in one sentence."""
        if self.timed_out:
            self.process.kill()
            self.process.wait()
            return f"the plug-in gave no answer in {self.timed_out:g} s {when}, and was stopped"
        status = self.process.wait()
        if status < 0:
            how = f"by signal {signal.Signals(-status).name}"
        else:
            how = f"with code {status}"
        self.printed.seek(0)
        lines = self.printed.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"the plug-in ended the process {how} {when}" + (f"; the last it printed: {last}" if last else "")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        self.printed.close()


def told() -> dict[str, str]:
    """Where a new process finds this package, and code generators their libraries."""
    package, others = str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {
        "PYTHONPATH": os.pathsep.join(p for p in [package, *others] if p),
        "FLAMBEAU_LIBRARY_PATH": os.pathsep.join(config.library_path),
    }


class Progress:
    """A line on the terminal that says where the check is; nothing where standard error is a file."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()
        self.show(0, 0, "opening the plug-in")

    def show(self, done: int, total: int, what: str) -> None:
        """Replaces the line."""
        if self.on:
            at = f"{done}/{total} " if total else ""
            sys.stderr.write(f"\r\x1b[K{at}{what}"[:100])
            sys.stderr.flush()

    def clear(self) -> None:
        """Takes the line away."""
        if self.on:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
