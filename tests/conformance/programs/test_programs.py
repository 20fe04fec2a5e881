"""What is an error of a program itself, and what a run is red for."""

import itertools
import re

import pytest

from . import suite, worker
from .program import Made, programs

THREAD = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+")


def raising(x):
    raise ValueError(x)


def test_each_program_names_its_issue():
    assert {name: p.issue for name, p in programs().items() if not THREAD.fullmatch(p.issue)} == {}


def test_errors_of_programs():
    counter = itertools.count()
    for make, status in [
        (lambda: Made(abs, [(1,), (-2,)]), "right"),
        (lambda: Made(raising, [(1,)]), "none"),
        (lambda: Made(raising, [(1,)], raises=[0]), "right"),
        (lambda: Made(abs, [(1,)], raises=[0]), "none"),
        (lambda: Made(lambda: next(counter), [()]), "none"),
    ]:
        assert worker.compare(make, "eager")["status"] == status


@pytest.mark.parametrize(
    ("known", "now", "red"),
    [
        (None, {"status": "right", "whole": False}, False),
        (None, {"status": "wrong", "whole": False}, True),
        ({"status": "wrong"}, {"status": "wrong", "whole": False}, False),
        ({"status": "wrong"}, {"status": "crash", "whole": False}, True),
        ({"status": "right", "whole": True}, {"status": "right", "whole": False}, True),
        ({"status": "none"}, {"status": "none"}, True),
    ],
)
def test_red(known, now, red):
    assert bool(suite.worse(known, now)) is red
