"""A part of the fuzzer for every day: some programs in each mode, others at each commit, and the shrunk programs of bugs
found before."""

import datetime
import subprocess
from pathlib import Path

import pytest

from . import gradients, joins, steps, writes
from .driver import Options, Run

MODES = ["plain", "wrap", "leaf", "flat"]
PROGRAMS = 100  # in each mode
FOUND = sorted((Path(__file__).parent / "found").glob("*.txt"))


def quiet(*_, **__) -> None:
    """Prints no progress."""


def failures(report) -> str:
    """The failures of a report for a person, shrunk ones as programs."""
    shown = [f["shrunk"] or f for f in report.failures if f.get("shrunk") or f["seed"] < 0]
    rest = [f"seed {f['seed']} {f['mode']} {f['backend']} {f['kind']}: {f['detail'][:200]}" for f in report.failures]
    return "\n".join([*rest, *(f"{f['kind']}: {f['detail']}\n{f['source']}" for f in shown)])


def of_commit() -> int:
    """A seed that is new at each commit, and the same wherever that commit is tested."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return int(done.stdout, 16) if done.returncode == 0 else datetime.date.today().toordinal()


@pytest.mark.parametrize("mode", MODES)
def test_programs(mode):
    first = of_commit()
    again = f"python -m tests.fuzz --seeds {first}:{first + PROGRAMS} --mode {mode}"
    report = Run(Options(list(range(first, first + PROGRAMS)), [mode], shrink=2, shrink_seconds=20), say=quiet).all()
    assert report.programs == {mode: PROGRAMS}, again
    assert not report.failures, f"{again}\n{failures(report)}"


@pytest.mark.parametrize("mode", MODES)
def test_found_before(mode):
    assert FOUND
    options = Options([], [mode], backends="eager,cpu", files=[str(p) for p in FOUND], shrink=0)
    report = Run(options, say=quiet).all()
    assert report.programs[mode] == 2 * len(FOUND)
    assert not report.failures, failures(report)


@pytest.mark.parametrize("part", range(4))
def test_gradients(part):
    """The same programs at each commit: what fails was broken by the change."""
    programs = (gradients.written(seed) for seed in range(100 * part, 100 * part + 100))
    failed = [f"{why}\n{program.source()}" for program in programs if (why := gradients.failure(program))]
    assert not failed, failed


def test_steps():
    first = of_commit()
    failed = [f"{why}\n{steps.source(seed)}" for seed in range(first, first + PROGRAMS) if (why := steps.failure(seed))]
    assert not failed, f"python -m tests.fuzz.steps --seeds {first}:{first + PROGRAMS}\n" + "\n".join(failed)


def test_joins():
    first = of_commit()
    failed = [f"{seed}: {found}" for seed in range(first, first + PROGRAMS) if (found := joins.told(seed))]
    assert not failed, f"python -m tests.fuzz.joins --seeds {first}:{first + PROGRAMS}\n" + "\n".join(failed)


def test_writes():
    first = of_commit()
    failed = [f"{seed}: {found}" for seed in range(first, first + 2 * PROGRAMS) if (found := writes.told(seed))]
    assert not failed, f"python -m tests.fuzz.writes --seeds {first}:{first + 2 * PROGRAMS}\n" + "\n".join(failed)
