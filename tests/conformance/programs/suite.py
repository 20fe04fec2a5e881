"""`cargo xtask conformance programs`: small programs of what users ask about, eagerly and compiled.

Each program is in a file of `themes` and names the public issue that it comes from. The table (`table.json`) says of
each: its status, whether it is captured whole, its breaks, graphs that run op by op, and what `torch.compile` gives
(`--torch`). A run is red where a program is wrong, broken or crashes and the table does not say so, or where it is
less whole than the table says. The last page of the report ranks what breaks by the number of programs.
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
from tests.conformance.hf import suite as hf

from .program import Known, programs

FILE = Path(__file__).parent / "table.json"
BATCH = 20
NOT_RUN = "not run"
SILENCE = 120.0
"""Seconds that one program may take."""
WORKER = "tests.conformance.programs.worker"


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What the table has of a row."""
    reasons = sorted({*row.get("breaks", {}), *row.get("fallbacks", {})})
    return {**hf.kept(row), **({"reasons": reasons} if reasons else {})}


def theirs(row: dict[str, Any]) -> dict[str, Any]:
    """What the table has of the peer's row."""
    breaks = row.get("breaks", 0)
    whole = row["status"] == "right" and not breaks and not row.get("given_up") and bool(row.get("graphs"))
    made = {"status": row["status"], "breaks": breaks, "whole": whole}
    # The rest of a message has the paths of this machine.
    return {**made, "detail": row["detail"].partition("\\n")[0]} if row.get("detail") else made


def worse(known: dict[str, Any] | None, now: dict[str, Any]) -> str:
    """Why a row is a failure; empty if it is none."""
    if now["status"] == "none":
        return f"an error of the suite: {now.get('detail')}"
    if now["status"] != "right" and (known or {}).get("status") != now["status"]:
        return f"{now['status']}: {now.get('detail') or now.get('reasons')}"
    if known and known.get("whole") and not now["whole"]:
        return f"no longer whole: {now.get('said') or now.get('reasons')}"
    return ""


def sums(rows: dict[str, dict[str, Any]], known: dict[str, Known]) -> list[str]:
    """Statuses and whole captures, of all and by theme; then the peer's."""
    states = Counter(row["status"] for row in rows.values())
    whole = Counter(known[name].theme for name, row in rows.items() if row.get("whole"))
    lines = [
        f"{len(rows)} programs: {', '.join(f'{count} {name}' for name, count in states.most_common())}; "
        f"{whole.total()} whole, {sum(row.get('breaks', 0) for row in rows.values())} breaks, "
        f"{sum(bool(row.get('slow')) for row in rows.values())} with graphs op by op"
    ]
    for theme, count in sorted(Counter(known[name].theme for name in rows).items()):
        lines.append(f"  {theme}: {whole[theme]} of {count} whole")
    peer = [row["torch"] for row in rows.values() if "torch" in row]
    if peer:
        states = Counter(row["status"] for row in peer)
        lines.append(
            f"torch.compile: {', '.join(f'{count} {name}' for name, count in states.most_common())}; "
            f"{sum(row['whole'] for row in peer)} of {len(peer)} whole, {sum(row['breaks'] for row in peer)} breaks"
        )
    return lines


def pages(rows: dict[str, dict[str, Any]], known: dict[str, Known]) -> list[str]:
    """The sums, what is not right, and last what breaks, ranked."""
    lines = sums(rows, known)
    ran = {name: row for name, row in rows.items() if row.get("detail") != NOT_RUN}
    both = {name: row for name, row in ran.items() if "torch" in row}
    peer = {name: row["torch"] for name, row in rows.items() if "torch" in row}
    for title, of in (("not right", ran), ("torch.compile: not right", peer)):
        bad = {name: row for name, row in of.items() if row["status"] != "right"}
        lines += ["", f"{title} ({len(bad)})"]
        lines += [f"{row['status']:8} {name}: {row.get('detail') or row.get('reasons')}" for name, row in bad.items()]
    for title, key in (("op by op", "slow"), ("reasons", "reasons"), ("breaks", "said")):
        # A break's line ends with what its reason means.
        ranked = Counter(line.split(". ")[0] for row in rows.values() for line in row.get(key, []))
        lines += ["", title, *(f"{count:5} {line}" for line, count in ranked.most_common(60))]
    for title, ours in (("whole only with torch.compile", False), ("whole only with flambeau", True)):
        only = [n for n, row in both.items() if row.get("whole", False) is ours and row["torch"]["whole"] is not ours]
        lines += ["", f"{title} ({len(only)})", *(f"  {name}: {known[name].issue}" for name in only)]
    return lines


def store(rows: dict[str, dict[str, Any]]) -> None:
    """Writes the table."""
    FILE.write_text(json.dumps(dict(sorted(rows.items())), indent=1, sort_keys=True) + "\n")


def main(argv: list[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="cargo xtask conformance programs", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs or themes; all by default")
    parser.add_argument("--part", default="0/1", help="like 2/6: every sixth, from the third on")
    parser.add_argument("--torch", action="store_true", help="run torch.compile instead, and keep what it gives")
    parser.add_argument("--update", action="store_true", help="write the table, after each batch")
    parser.add_argument("--json", type=Path, help="where to write a report")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    known = programs()
    asked = set(options.names)
    if unknown := asked - set(known) - {p.theme for p in known.values()}:
        parser.error(f"no such program or theme: {', '.join(sorted(unknown))}")
    at, _, of = options.part.partition("/")
    names = [name for name, p in known.items() if not asked or {name, p.theme} & asked][int(at) :: int(of)]
    table: dict[str, dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    table = {name: row for name, row in table.items() if name in known}
    found, failures = dict[str, dict[str, Any]](), dict[str, str]()
    batches = [names[i : i + BATCH] for i in range(0, len(names), BATCH)]
    with children.Place("programs") as place, ThreadPoolExecutor(options.jobs) as pool:
        job = {"way": "torch" if options.torch else "flambeau"}
        for future in as_completed([pool.submit(place.rows, WORKER, batch, job, SILENCE) for batch in batches]):
            for name, row in future.result().items():
                if options.torch:
                    found[name] = {**table.get(name, {"status": "none", "detail": NOT_RUN}), "torch": theirs(row)}
                    continue
                found[name] = kept(row)
                if "torch" in table.get(name, {}):
                    found[name]["torch"] = table[name]["torch"]
                if why := worse(table.get(name), found[name]):
                    failures[name] = why
            print(f"{len(found)} of {len(names)}", file=sys.stderr, flush=True)
            if options.update:
                store({**table, **found})
    if options.json:
        options.json.write_text(json.dumps({"rows": found, "failures": failures}, indent=1, sort_keys=True))
    print("\n".join([*pages(found, known), *(f"WORSE {name}: {why}" for name, why in sorted(failures.items()))]))
    return 1 if failures else 0
