"""`cargo xtask conformance hf`: small models of transformers' architectures, eagerly and compiled.

The table (`table.json`) says of each: its status, breaks, graphs that run op by op, the same of two training steps
(`--training`), and what `torch.compile` breaks (`--torch`). A run is red where an architecture is wrong, broken, or
less whole than the table says. The last page of the report ranks what breaks by the number of architectures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests import internal
from tests.conformance import children

FILE = Path(__file__).parent / "table.json"
BATCH = 12
SILENCE = 300.0
"""Seconds that one architecture may take."""
WORKER, TRAINER = "tests.conformance.hf.worker", "tests.conformance.hf.training"
GOOD = ("right", "asks", "none")


def whole(row: dict[str, Any]) -> bool:
    """Captured as one graph a call, with nothing left to plain Python."""
    return row["status"] in ("right", "asks") and not row.get("breaks") and not row.get("fallbacks")


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What the table has of a row."""
    reasons = {**row.get("breaks", {}), **row.get("fallbacks", {}), **row.get("op_by_op", {})}
    inner = [reason for reason in reasons if reason.split(":")[0] in internal.REASONS]
    made: dict[str, Any] = {"status": "internal" if inner else row["status"]}
    if row.get("detail"):
        made["detail"] = row["detail"]
    if row["status"] != "none":
        made |= {"breaks": sum(row.get("breaks", {}).values()), "whole": whole(row)}
        made |= {key: row[key] for key in ("said", "slow") if row.get(key)}
    return made


def worse(known: dict[str, Any] | None, now: dict[str, Any]) -> str:
    """Why a row is a failure; empty if it is none."""
    if now["status"] not in GOOD:
        return f"{now['status']}: {now.get('detail', '')}"
    if known and known.get("whole") and not now.get("whole"):
        return f"no longer whole: {now.get('said') or now.get('detail')}"
    return ""


def pages(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The sums, then what breaks and what runs op by op, ranked."""
    run = {name: row for name, row in rows.items() if row["status"] != "none"}
    states = Counter(row["status"] for row in rows.values())
    breaks = sum(row.get("breaks", 0) for row in run.values())
    lines = [
        f"{len(rows)} architectures: {', '.join(f'{count} {name}' for name, count in states.most_common())}",
        f"{sum(bool(row.get('whole')) for row in run.values())} of {len(run)} whole, {breaks} breaks, "
        f"{sum(bool(row.get('slow')) for row in run.values())} with graphs op by op",
    ]
    theirs = [row["torch"] for row in rows.values() if row.get("torch")]
    if theirs:
        good = sum(t["breaks"] == 0 and t["status"] in GOOD for t in theirs)
        lines.append(f"torch.compile: {good} of {len(theirs)} whole, {sum(t['breaks'] for t in theirs)} breaks")
    for title, key in (("breaks", "said"), ("op by op", "slow")):
        ranked = Counter(line for row in run.values() for line in row.get(key, []))
        lines += ["", title, *(f"{count:5} {line}" for line, count in ranked.most_common(40))]
    return lines


def main(argv: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="cargo xtask conformance hf", description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures, like bert; all by default")
    parser.add_argument("--part", default="0/1", help="like 2/6: every sixth, from the third on")
    parser.add_argument(
        "--torch", action="store_true", help="run torch.compile instead, and keep its breaks in the table"
    )
    parser.add_argument("--training", action="store_true", help="two training steps, with their gradients")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--json", type=Path, help="where to write a report")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    from . import build

    at, _, of = options.part.partition("/")
    names = options.names or build.names()[int(at) :: int(of)]
    known: dict[str, dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    found, failures = dict[str, dict[str, Any]](), dict[str, str]()
    worker = TRAINER if options.training else WORKER
    job = {"way": "torch" if options.torch else "flambeau"}
    batches = [names[i : i + BATCH] for i in range(0, len(names), BATCH)]
    with children.Place("hf") as place, ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(place.rows, worker, batch, job, SILENCE) for batch in batches]):
            for name, row in future.result().items():
                if options.torch:
                    theirs = {"status": row["status"], "breaks": row.get("breaks", 0)}
                    found[name] = {**known.get(name, {"status": "none"}), "torch": theirs}
                    continue
                before, now = known.get(name, {}), kept(row)
                if why := worse(before.get("training") if options.training else before, now):
                    failures[name] = why
                    print(f"WORSE {name}: {why}", file=sys.stderr)
                if options.training:
                    found[name] = {**before, "training": now}
                else:
                    found[name] = {**now, **{key: before[key] for key in ("torch", "training") if key in before}}
            print(f"{len(found)} of {len(names)}", file=sys.stderr, flush=True)
    if options.update:
        FILE.write_text(json.dumps(dict(sorted({**known, **found}.items())), indent=1, sort_keys=True) + "\n")
    if options.json:
        options.json.write_text(json.dumps({"rows": found, "failures": failures}, indent=1, sort_keys=True))
    shown = {name: row["training"] for name, row in found.items()} if options.training else found
    print("\n".join([*pages(shown), *(f"WORSE {name}: {why}" for name, why in sorted(failures.items()))]))
    return 1 if failures else 0
