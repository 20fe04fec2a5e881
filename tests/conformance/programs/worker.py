"""A child process: runs some programs eagerly and compiled; an event per line of JSON.

{"start": name}   {"done": name, "status", "detail", "breaks", "fallbacks", "said", "slow", "graphs"}   {"end": true}

The job: {"names": [name, ...], "way": "flambeau" or "torch"}. Status: `right`, `wrong`, `broken` (raises only when
compiled), `none` (an error of this suite: it raises eagerly where it does not say so, or two eager runs differ).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.conformance import children
from tests.conformance.hf.worker import main, report, since
from tests.conformance.packages import observe
from tests.conformance.packages.worker import compiler, counts

from .program import THEMES, Made, programs

TOLERANCE = 1e-5


def kinds(value: Any) -> Any:
    """Names of types, element by element: a scalar of numpy is not an array."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [kinds(part) for part in value]
    if isinstance(value, dict):
        return type(value).__name__, [kinds(part) for part in value.values()]
    return type(value).__name__


def called(made: Made, call: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """One call: its result, and what the program wants looked at."""
    if not made.warns:
        result = call(*args)
        return result, kinds(result), made.look and made.look(args, result)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call(*args)
        seen = made.look and made.look(args, result)
    # Warnings of the compilers themselves are not the program's.
    ours = [w for w in caught if w.filename.startswith(str(THEMES))]
    return result, kinds(result), seen, [(w.category.__name__, str(w.message), w.lineno) for w in ours]


def run(make: Callable[[], Made], compile: Callable[..., Any]) -> tuple[Made, Any, list[dict[str, Any]]]:
    """Makes a program anew and makes its calls: what each leaves behind."""
    observe.seed(0)
    made, seen = make(), []
    call = compile(made.call)
    for number, args in enumerate(made.calls):
        if made.before:
            made.before(number)
        observe.seed(2000 + number)
        seen.append(observe.observe(lambda *a: called(made, call, a), args, made.state, made.backward))
    return made, call, seen


def differs(expected: list[dict[str, Any]], found: list[dict[str, Any]], tolerance: float) -> tuple[int, str]:
    """The first call that differs, and how; `-1` if none does."""
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        if how := observe.difference(a, b, tolerance):
            return number, f"call {number}: {how}"
    return -1, ""


def counted(way: str) -> dict[str, Any]:
    """What a compiler counts; of the peer also frames that it gave up, which it counts as no break."""
    found = counts(way)
    if way == "torch":
        frames = torch._dynamo.utils.counters["frames"]
        found["given_up"] = frames["total"] - frames["ok"]
    return found


def compare(make: Callable[[], Made], way: str) -> dict[str, Any]:
    """Runs one program: twice eagerly, then compiled."""
    made, _, eager = run(make, compiler("eager"))
    raised = [number for number, seen in enumerate(eager) if seen["exception"]]
    if raised != list(made.raises):
        said = [eager[number]["exception"] for number in raised]
        return {"status": "none", "detail": f"raises eagerly in calls {raised}: {said}"[:300]}
    if how := differs(eager, run(make, compiler("eager"))[2], 0.0)[1]:
        return {"status": "none", "detail": f"eager runs differ: {how}"[:300]}
    before = counted(way)
    _, compiled, ours = run(make, compiler(way))
    found = since(before, counted(way))
    found["graphs"] = found.get("graphs", 0)
    if way == "flambeau":
        found |= report(compiled)
    number, how = differs(eager, ours, TOLERANCE)
    if not how:
        return {"status": "right", **found}
    broken = ours[number]["exception"] and not eager[number]["exception"]
    return {"status": "broken" if broken else "wrong", "detail": how[:300], **found}


if __name__ == "__main__":
    main(children.job(), children.Voice(), lambda name, way: compare(programs()[name].make, way))
