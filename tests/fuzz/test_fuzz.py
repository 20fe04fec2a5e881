"""A part of the fuzzer for every day: some programs in each mode, and the shrunk programs of bugs found before."""

import os
import random
from pathlib import Path

import pytest

from .driver import Options, Run

MODES = ["plain", "wrap", "leaf", "flat"]
FOUND = sorted((Path(__file__).parent / "found").glob("*.txt"))


def quiet(*_, **__) -> None:
    """Prints no progress."""


def failures(report) -> str:
    """The failures of a report for a person, shrunk ones as programs."""
    shown = [f["shrunk"] or f for f in report.failures if f.get("shrunk") or f["seed"] < 0]
    rest = [f"seed {f['seed']} {f['mode']} {f['backend']} {f['kind']}: {f['detail'][:200]}" for f in report.failures]
    return "\n".join([*rest, *(f"{f['kind']}: {f['detail']}\n{f['source']}" for f in shown)])


@pytest.mark.parametrize("mode", MODES)
def test_programs(mode):
    from . import modes

    if not modes.available(mode):
        pytest.skip(f"no mode {mode} in this build")
    report = Run(Options(list(range(40)), [mode], shrink=2, shrink_seconds=20), say=quiet).all()
    assert report.programs[mode] == 40
    assert not report.failures, failures(report)


@pytest.mark.skipif("FLAMBEAU_FUZZ_FRESH" not in os.environ, reason="FLAMBEAU_FUZZ_FRESH: how many new programs")
@pytest.mark.parametrize("mode", MODES)
def test_new_programs(mode):
    """Other programs every time, as many as `FLAMBEAU_FUZZ_FRESH` says; what to run again with is printed and in the message."""
    from . import modes

    if not modes.available(mode):
        pytest.skip(f"no mode {mode} in this build")
    first, count = random.SystemRandom().randrange(10**9), int(os.environ["FLAMBEAU_FUZZ_FRESH"])
    again = f"python -m tests.fuzz --seeds {first}:{first + count} --mode {mode}"
    print(again)
    report = Run(Options(list(range(first, first + count)), [mode], shrink=2, shrink_seconds=20), say=quiet).all()
    assert report.programs == {mode: count}, again
    assert not report.failures, f"{again}\n{failures(report)}"


@pytest.mark.parametrize("mode", MODES)
def test_found_before(mode):
    from . import modes

    if not modes.available(mode) or not FOUND:
        pytest.skip(f"no mode {mode} in this build" if FOUND else "nothing found yet")
    options = Options([], [mode], backends="eager,cpu", files=[str(p) for p in FOUND], shrink=0)
    report = Run(options, say=quiet).all()
    assert report.programs[mode] == 2 * len(FOUND)
    assert not report.failures, failures(report)
