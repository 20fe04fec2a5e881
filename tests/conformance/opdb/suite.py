"""`cargo xtask conformance opdb`: torch's own operators with its samples of their arguments, eagerly and compiled.

Results, and with `--gradients` the gradients of all arguments, are judged by eager's, and by float64's where they
differ. The table (`values.txt`, `gradients.txt`) says of each operator how many samples it has, and how many became
plans as a whole. A run is red where an operator is wrong or raises, or where fewer samples became plans than the table
says. The last page of the report ranks what runs op by op.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.conformance import children

FOLDER = Path(__file__).parent
BATCH = 25
SILENCE = 240.0
"""Seconds that one operator may take."""
WORKER = "tests.conformance.opdb.worker"
HEAD = "# operator: samples that run eagerly, those of them that became plans as a whole"


def table(path: Path) -> dict[str, tuple[int, int]]:
    """For each operator its samples, and how many became plans; none if there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    parted = (line.rsplit(maxsplit=2) for line in lines if not line.startswith("#"))
    return {name: (int(samples), int(native)) for name, samples, native in parted}


def worse(known: tuple[int, int] | None, row: dict[str, Any]) -> str:
    """Why a row is a failure; empty if it is none."""
    if row["status"] not in ("right", "none"):
        return f"{row['status']}: {row['detail']}"
    samples, native = known or (0, 0)
    if row["status"] == "right" and row["samples"] == samples and row["native"] < native:
        return f"{row['native']} of {samples} samples became plans, it were {native}"
    return ""


def pages(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The sums, then why graphs run op by op, ranked."""
    states = Counter(row["status"] for row in rows.values())
    ran = [row for row in rows.values() if row.get("samples")]
    samples, native = sum(row["samples"] for row in ran), sum(row["native"] for row in ran)
    said = sum((Counter(row["said"]) for row in ran), Counter[str]())
    return [
        f"{len(rows)} operators: {', '.join(f'{count} {name}' for name, count in states.most_common())}",
        f"{native} of {samples} samples became plans ({100 * native / max(1, samples):.1f} %)",
        "",
        "op by op",
        *(f"{count:5} {reason}" for reason, count in said.most_common(40)),
    ]


def main(argv: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="cargo xtask conformance opdb", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, like addmm; all by default")
    parser.add_argument("--gradients", action="store_true", help="with arguments that require grad")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--json", type=Path, help="where to write a report")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    from .worker import operators

    names = options.names or list(operators())
    path = FOLDER / ("gradients.txt" if options.gradients else "values.txt")
    known, found, failures = table(path), dict[str, dict[str, Any]](), dict[str, str]()
    batches = [names[at : at + BATCH] for at in range(0, len(names), BATCH)]
    with children.Place("opdb") as place, ThreadPoolExecutor(options.jobs) as pool:
        job = {"gradients": options.gradients}
        for future in as_completed([pool.submit(place.rows, WORKER, batch, job, SILENCE) for batch in batches]):
            found |= future.result()
            print(f"{len(found)} of {len(names)}", file=sys.stderr, flush=True)
    failures = {name: why for name, row in found.items() if (why := worse(known.get(name), row))}
    if options.update:
        known |= {name: (row["samples"], row["native"]) for name, row in found.items() if row.get("samples")}
        lines = [f"{name} {samples} {native}" for name, (samples, native) in sorted(known.items())]
        path.write_text("\n".join([HEAD, *lines]) + "\n")
    if options.json:
        options.json.write_text(json.dumps({"rows": found, "failures": failures}, indent=1, sort_keys=True))
    print("\n".join([*pages(found), *(f"WORSE {name}: {why}" for name, why in sorted(failures.items()))]))
    return 1 if failures else 0
