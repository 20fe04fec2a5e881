"""Reasons that say that the compiler was wrong: a prediction that a check caught, a panic that was fenced, guards that
do not hold right after the trace that asked for them.

Eager code gave the right result then, so no comparison of results finds them: every test and every run of programs asks
for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REASONS = ("internal", "run_failed", "output_mismatch", "changed_during_compile", "install_failed", "backward_failed")
KINDS = ("graph_breaks", "eager_fallbacks", "eager_graph_reasons")


def counted(counters: Mapping[str, Any]) -> dict[str, int]:
    """Of `flambeau.counters()`: reason and count of those that should never be counted."""
    found: dict[str, int] = {}
    for kind in KINDS:
        for reason in REASONS:
            if count := counters[kind].get(reason, 0):
                found[reason] = found.get(reason, 0) + count
    return found
