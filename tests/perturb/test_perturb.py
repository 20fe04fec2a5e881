"""Every change of one fact of a small program's world gives what eager gives; every guard is broken by some change.

A change that fails is run alone in `tests` with `python -m perturb NAME --change CHANGE`.
"""

import re

import pytest
from fuzz import program

from .absent import ABSENT
from .changes import absences
from .check import check
from .corpus import ENTRIES
from .world import Entry

#: Changes that give other results than eager: open bugs. (entry, change): what is wrong.
OPEN: dict[tuple[str, str], str] = {}

#: Guards that no change breaks (a pattern for their words), and why that is no gap.
UNBROKEN = {
    r"is not (builtins|function\.__globals__)$": "a namespace as an argument cannot be compared after the call",
    r"^builtins\['\w+'\]\.(__\w+__|__mro__\[\d\]) is builtins\.": "a built-in type cannot be changed",
    r"\.__mro__\[\d\] is torch\._C\.TensorBase$": "the base of a built-in type cannot be changed",
    r"^type\(arg[12]\) is builtins\.(tuple|dict)$": "made by the call for *args and **kwargs",
    r"^builtins\['\w+'\] is builtins\.": "read by torch's own code; those that the program names are patched",
    r"^list\(arg2\) == \[\]$|^\"k\" not in arg2$": "changes give no keyword arguments",
    r"^type\(arg0\) is program\.Block$": "the class of a compiled view is made when the module is compiled",
    r"\.__code__\.co_consts\[": "constants change with the code, of which there is a guard",
    r"flambeau\.polyfills": "functions of this package, which changes leave alone",
    r"^function is a function with the code$": "a compiled view keeps the __call__ that its class had at first",
}

#: What appears (a pattern for the change), unseen, and why.
UNSEEN = {
    r"^absent registrations: .* appears __(len__|iter__|subclasshook__|hash__, None): ": "ABCs remember what they said",
}
APPEARANCES = 120  # of each program, always the same

#: Entries that are too large for all of their changes at each run.
SAMPLED = {"modules": 150, "module": 300}


#: Random programs of the fuzzer, some changes of each.
SEEDS = (2, 5, 34, 45)


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_of_random_programs(seed):
    report = check(Entry(f"seed {seed}", program.source(seed, 0.2), seed, reach=3), most=60)
    assert not [str(w) for w in report.wrong]
    assert report.guards


@pytest.mark.parametrize("entry", ABSENT, ids=lambda entry: entry.name)
def test_what_was_not_there_appears(entry):
    report = check(entry, most=APPEARANCES, made=absences)
    assert not [str(w) for w in report.wrong if not any(re.search(pattern, str(w)) for pattern in UNSEEN)]
    assert report.guards
    assert len(report.refused) < report.changes / 10


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_change_gives_the_eager_result(entry):
    report = check(entry, most=SAMPLED.get(entry.name))
    known = {change for name, change in OPEN if name == entry.name}
    assert not [str(w) for w in report.wrong if w.change not in known]
    assert {w.change for w in report.wrong} == known, "an open bug is gone"
    assert report.guards
    assert len(report.refused) < report.changes / 3
    if entry.name not in SAMPLED:
        assert not [g for g in report.unbroken() if not any(re.search(pattern, g) for pattern in UNBROKEN)]
