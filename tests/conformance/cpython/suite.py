"""`cargo xtask conformance cpython`: runs the test methods of CPython's `Lib/test` eagerly and compiled, and compares.

A method that passes eagerly must pass compiled, and count as traced: what the checked-in table
(`tables/VERSION-MODE.txt`) does not list as failing or untraced must not be so.
Internal reasons during a method are failures of it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance import children, slices, table

from . import modules

MODES = ("plain", "wrap")
HERE = Path(__file__).parent
STATE = children.ROOT / "target/conformance/cpython"
MOST_EXCEPTIONS = 40
PASSES = ("ok", "expected")
LIMIT = 60.0  # seconds of a method, if it takes no fraction of that eagerly
MODULE_LIMIT = 1200.0  # seconds of a module, eagerly or compiled
PART = 24.0  # seconds: modules that take longer are divided for slices
DIED = "crash"


@dataclass
class Ran:
    """What one run of a module's methods gave: outcomes by name."""

    found: list[str] = field(default_factory=list)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Found:
    """A module, compared."""

    module: str
    mode: str
    methods: int = 0
    passing: int = 0
    compiled: int = 0
    traced: int = 0
    seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    excepted: dict[str, str] = field(default_factory=dict)
    untraced: list[str] = field(default_factory=list)
    run: list[str] = field(default_factory=list)

    def group(self) -> table.Group:
        """As a line of the table and those below it."""
        return table.Group(self.passing, self.seconds, set(self.failures), set(self.untraced))


@dataclass(frozen=True)
class Part:
    """What is run at once: a module in a mode, or every `of`th of its methods."""

    module: str
    mode: str
    at: int = 0
    of: int = 1

    def __str__(self) -> str:
        return f"{self.mode} {self.module}" + (f" {self.at + 1}/{self.of}" if self.of > 1 else "")


class Run:
    """A run of parts, in a place of its own."""

    def __init__(
        self, place: children.Place, args: argparse.Namespace, excepted: dict[str, str], tables: dict[str, table.Table]
    ):
        self.place, self.args, self.excepted, self.tables = place, args, excepted, tables

    def part(self, part: Part) -> Found:
        """Runs it eagerly, then compiled what passed."""
        begun = time.monotonic()
        eager = self.methods(part, None, {}, compiled=False)
        passing = [n for n in eager.found if n in eager.outcomes and eager.outcomes[n]["outcome"] in PASSES]
        times = {n: o["seconds"] for n, o in eager.outcomes.items()}
        ran = self.methods(part, passing, times, compiled=True)
        found = Found(part.module, part.mode, methods=len(eager.outcomes), passing=len(passing), run=passing)
        for name in passing:
            self.compare(found, name, eager.outcomes[name], ran.outcomes.get(name))
        found.seconds = round(time.monotonic() - begun, 1)
        return found

    def compare(self, found: Found, name: str, eager: dict[str, Any], got: dict[str, Any] | None) -> None:
        """Puts one method where it belongs."""
        if got and got["outcome"] == eager["outcome"]:
            found.compiled += 1
            found.traced += got["traced"]
            if not got["traced"]:
                found.untraced.append(name)
            return
        said = f"{got['outcome']}: {got['detail']}" if got else "was not run"
        full = f"{found.module}.{name}"
        (found.excepted if full in self.excepted else found.failures)[name] = said

    def methods(self, part: Part, only: list[str] | None, times: dict[str, float], compiled: bool) -> Ran:
        """Runs methods in as many processes as it takes: the one that ends a process is not run again."""
        ran, begun = Ran(), time.monotonic()
        waiting = only
        while waiting is None or waiting:
            if waiting is None and (part.of > 1 or self.args.k or self.args.failing):
                waiting = self.chosen(part, self.listed(part))
                ran.found = waiting
                continue
            died = self.child(part, waiting, times, compiled, ran)
            ran.found = ran.found if only is None else only
            left = [n for n in ran.found if n not in ran.outcomes]
            if died is None or not left or time.monotonic() - begun > MODULE_LIMIT:
                break
            waiting = left
        ran.seconds = time.monotonic() - begun
        return ran

    def child(
        self, part: Part, only: list[str] | None, times: dict[str, float], compiled: bool, ran: Ran
    ) -> str | None:
        """One process; gives back how it died, if it did."""
        limits = {name: max(LIMIT, 20 * seconds) for name, seconds in times.items()}
        job = {
            "module": part.module, "mode": part.mode, "compiled": compiled, "only": only, "limits": limits,
            "limit": LIMIT, "loud": self.args.loud,
        }  # fmt: skip
        running = last = ""
        silence = 30 + max([LIMIT, *limits.values()])
        errors = sys.stderr if self.args.loud else None
        for event in self.place.events("tests.conformance.cpython.worker", job, silence, errors):
            if "found" in event:
                ran.found = ran.found or event["found"]
            elif "start" in event:
                running = event["start"]
            elif "done" in event:
                last = event.pop("done")
                ran.outcomes[last] = event
                running = ""
            elif "died" in event:
                running = running or last  # what a method leaves behind may end the process after it
                if not running:
                    raise RuntimeError(f"{part}: the process died between methods: {event['died']}\n{event['errors']}")
                hang = "silent" in event["died"] or "Timeout (" in event["errors"]
                detail = f"{event['died']}: {_gist(event['errors'])}"
                outcome = "hang" if hang else DIED
                ran.outcomes[running] = {"outcome": outcome, "detail": detail, "traced": False, "seconds": LIMIT}
                return str(event["died"])
        return None

    def listed(self, part: Part) -> list[str]:
        """All methods of a module, none run."""
        job = {
            "module": part.module, "mode": part.mode, "compiled": False, "only": [], "limits": {}, "limit": LIMIT,
            "loud": False,
        }  # fmt: skip
        events = list(self.place.events("tests.conformance.cpython.worker", job, 60))
        for event in events:
            if "found" in event:
                return list(event["found"])
        raise RuntimeError(f"{part}: {events}")

    def chosen(self, part: Part, names: list[str]) -> list[str]:
        """Those of the part that the command line asks for."""
        chosen = [n for i, n in enumerate(names) if i % part.of == part.at and (self.args.k or "") in n]
        if not self.args.failing:
            return chosen
        known = self.tables[part.mode].groups.get(part.module, table.Group())
        return [n for n in chosen if n in known.fails]


def _gist(errors: str) -> str:
    """Where a process was when it ended, from what it wrote last."""
    lines = [line.strip() for line in errors.splitlines()]
    first = next((line for line in lines if line.startswith(("Fatal Python", "thread '", "Timeout"))), "")
    place = next((line for line in lines if line.startswith("File ")), "")
    return f"{first} {place}"[:300]


def parts(args: argparse.Namespace, version: str) -> list[Part]:
    """What the command line asks for, or what the slice's ID gives."""
    names = args.modules.split(",") if args.modules else modules.names()
    if not args.slice:
        return [
            Part(name, mode) for mode in args.mode.split(",") for name in names if listed(name, mode, args, version)
        ]
    units: list[tuple[Part, float]] = []
    for mode in args.mode.split(","):
        groups = table.Table.read(table_path(version, mode)).groups
        for name in (n for n in names if n in groups):
            seconds = groups[name].seconds
            of = max(1, round(seconds / PART))
            # Two processes start in each part, whatever it holds.
            units += [(Part(name, mode, at, of), seconds / of + (8 if of > 1 else 0)) for at in range(of)]
    return slices.drawn(units, args.slice)


def listed(name: str, mode: str, args: argparse.Namespace, version: str) -> bool:
    """Whether there is something to run in a module."""
    groups = table.Table.read(table_path(version, mode)).groups
    return not args.failing or bool(groups.get(name, table.Group()).fails)


def table_path(version: str, mode: str) -> Path:
    """Where the table is."""
    return HERE / f"tables/{version}-{mode}.txt"


class Report:
    """Says what was found, and whether it is worse than the tables."""

    def __init__(self, version: str, write: bool):
        self.version, self.write = version, write
        self.found: list[Found] = []
        self.red: list[str] = []
        self.tables = {mode: table.Table.read(table_path(version, mode)) for mode in MODES}

    def add(self, part: Part, found: Found) -> None:
        """One more part; what is worse is said at once."""
        self.found.append(found)
        group, known = found.group(), self.tables[part.mode]
        worse = known.worse(part.module, group)
        for name in sorted(worse["fails"]):
            self.red.append(f"{part.mode} {part.module}.{name}: {found.failures[name]}")
        for name in sorted(worse["untraced"]):
            self.red.append(f"{part.mode} {part.module}.{name}: passes, but nothing of it was traced")
        better = known.better(part.module, group, set(found.run))
        counts = f"{found.passing} pass eagerly, {found.compiled} compiled, {found.traced} traced"
        more = f"; {sum(map(len, worse.values()))} worse" if any(worse.values()) else ""
        print(
            f"{part}: {counts}, {found.seconds:.0f} s{more}" + (f"; {len(better)} better" if better else ""), flush=True
        )
        if self.write and part.of == 1:
            known.groups[part.module] = group
            known.write(table_path(self.version, part.mode), HEAD.format(version=self.version, mode=part.mode))

    def failures(self) -> Iterator[str]:
        """All that failed, the table's as well."""
        for found in self.found:
            for name, said in sorted(found.failures.items()):
                yield f"{found.mode} {found.module}.{name}: {said}"

    def end(self, path: Path | None) -> int:
        """The sums; writes the JSON report; 1 if something is worse."""
        for mode in sorted({f.mode for f in self.found}):
            of = [f for f in self.found if f.mode == mode]
            passing, compiled, traced = (sum(getattr(f, n) for f in of) for n in ("passing", "compiled", "traced"))
            excepted = sum(len(f.excepted) for f in of)
            share = 100 * traced / max(1, passing)
            print(
                f"{self.version} {mode}: {len(of)} parts, {passing} methods pass eagerly, {compiled} compiled, "
                f"{excepted} excepted, {passing - compiled - excepted} fail, {share:.1f} % traced"
            )
        if path:
            data = {"version": self.version, "parts": [asdict(f) for f in self.found], "worse": self.red}
            path.write_text(json.dumps(data, indent=1))
        if self.write:
            return 0
        for line in self.red:
            print("WORSE", line)
        return 1 if self.red else 0


HEAD = """CPython {version}'s tests in the mode {mode}: module, methods that pass eagerly, seconds (in powers of two).
`fails`: passes eagerly, not compiled. `untraced`: passes, but its own frame was not traced.
Written by `cargo xtask conformance cpython --write`."""


def main(argv: list[str]) -> int:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(prog="cargo xtask conformance cpython", description=__doc__)
    parser.add_argument("--mode", default=",".join(MODES), help="plain, wrap, or both with a comma (the default)")
    parser.add_argument("--modules", help="like test_dict,test_list; all by default")
    parser.add_argument("-k", help="only methods with this in their name; `--write` is off")
    parser.add_argument("--failing", action="store_true", help="only what the tables list as failing; no `--write`")
    parser.add_argument("--slice", help="run what this ID draws, at most 3 minutes; `commit`: the commit's name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--resume", action="store_true", help="go on with the run that was stopped")
    parser.add_argument("--write", action="store_true", help="write what is found into the tables, and be green")
    parser.add_argument("--json", type=Path, help="where to write a report")
    parser.add_argument("--failures", type=Path, help="where to write all failures, one a line, as they are found")
    parser.add_argument("--loud", action="store_true", help="show tracebacks and what the tests print")
    args = parser.parse_args(argv)
    if args.slice:
        args.slice = slices.identity(args.slice)
        print(f"slice {args.slice}", flush=True)
    version = "{}.{}".format(*sys.version_info[:2])
    excepted = table.exceptions(HERE / "exceptions.txt", MOST_EXCEPTIONS)
    wanted = parts(args, version)
    report = Report(version, args.write and not (args.k or args.failing))
    state = STATE / version
    with children.Place("conformance") as place:
        run = Run(place, args, excepted, report.tables)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            going = {pool.submit(stored, run, part, state, args): part for part in wanted}
            try:
                for future in concurrent.futures.as_completed(going):
                    report.add(going[future], future.result())
                    if args.failures:
                        args.failures.write_text("".join(f"{line}\n" for line in report.failures()))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return report.end(args.json)


def stored(run: Run, part: Part, state: Path, args: argparse.Namespace) -> Found:
    """What the stopped run found, else what a run finds; kept until the next one."""
    file = state / part.mode / f"{part.module}.json"
    if args.resume and file.exists():
        return Found(**json.loads(file.read_text()))
    found = run.part(part)
    if part.of == 1 and not (args.k or args.failing):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(found)))
    return found
