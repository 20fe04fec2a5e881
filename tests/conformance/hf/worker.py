"""A child process: builds some architectures and runs each eagerly and compiled; an event per line of JSON.

{"start": name}   {"done": name, "status", "detail", "breaks", "fallbacks", "said", "slow", "first"}   {"end": true}

The job: {"names": [name, ...], "way": "flambeau" or "torch"}. Status: `right`, `wrong`, `broken` (raises only when
compiled), `asks` (as eager gives where `torch.compiler.is_compiling()` is true: the library's own other way), `none`
(cannot be built or does not run eagerly).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from tests.conformance import children
from tests.conformance.packages import observe
from tests.conformance.packages.worker import compiler, counts

from . import build

TOLERANCE = 2e-3
Compare = Callable[[str, str], dict[str, Any]]


def steps(model: Any, given: dict[str, Any]) -> Callable[[Callable[..., Any]], Any]:
    """A call, and a step with the cache that it gives if it gives one."""

    def run(call: Callable[..., Any]) -> Any:
        with torch.no_grad():
            first = call(**given)
            cache = getattr(first, "past_key_values", None)
            if cache is None or "input_ids" not in given or model.config.is_encoder_decoder:
                return first
            return first, call(input_ids=given["input_ids"][:, :1], past_key_values=cache)

    return run


def seen(run: Callable[[Callable[..., Any]], Any], call: Callable[..., Any]) -> dict[str, Any]:
    """What a run gives, from equal states of the generators."""
    observe.seed(2)
    return observe.observe(run, (call,), (), backward=False)


def compare(name: str, way: str) -> dict[str, Any]:
    """Runs one architecture."""
    try:
        model, given, _ = build.ready(name)
    except Exception as error:
        return {"status": "none", "detail": str(error)[:200]}
    run = steps(model, given)
    eager = {**seen(run, model), "arguments": None}
    if eager["exception"]:
        return {"status": "none", "detail": str(eager["exception"])[:200]}
    before = counts(way)
    compiled = compiler(way)(model)
    begun = time.perf_counter()
    ours = {**seen(run, compiled), "arguments": None}
    first = time.perf_counter() - begun
    found = {**since(before, counts(way)), "first": round(first, 1)}
    if way == "flambeau":
        found |= report(compiled)
    differs = observe.difference(eager, ours, TOLERANCE)
    if not differs:
        return {"status": "right", **found}
    with mock.patch("torch.compiler.is_compiling", return_value=True):
        other = {**seen(run, model), "arguments": None}
    if not observe.difference(other, ours, TOLERANCE):
        return {"status": "asks", **found}
    return {"status": "broken" if ours["exception"] else "wrong", "detail": differs[:300], **found}


def since(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What was counted in between."""

    def less(a: Any, b: Any) -> Any:
        if isinstance(b, dict):
            grown = {key: less(a.get(key, 0) if isinstance(a, dict) else 0, count) for key, count in b.items()}
            return {key: count for key, count in grown.items() if count}
        return b - (a or 0)

    return {key: less(before.get(key), value) for key, value in now.items()}


def report(compiled: Any) -> dict[str, Any]:
    """Each break in a line, and why graphs run op by op."""
    from flambeau import _report

    data = _report.explanation(compiled).data
    said = sorted({b["text"].splitlines()[0][:200] for b in data["breaks"]})
    slow = [line.strip() for line in str(_report.explanation(compiled)).splitlines() if "runs op by op" in line]
    return {"said": said, "slow": sorted({line[:160] for line in slow})}


def main(job: dict[str, Any], voice: children.Voice, compare: Compare) -> None:
    """Runs the job: `compare` gives the row of a name, run in a way."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in job["names"]:
        voice.say(start=name)
        try:
            row = compare(name, job["way"])
        except Exception as error:
            row = {"status": "broken", "detail": f"{type(error).__name__}: {error}"[:300]}
        if job["way"] == "flambeau":
            import flambeau

            flambeau.reset()
        else:
            torch._dynamo.reset()
        voice.say(done=name, **row)
    voice.say(end=True)


if __name__ == "__main__":
    main(children.job(), children.Voice(), compare)
