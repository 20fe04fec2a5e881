"""The checked-in table: what each program gives, here and under `torch.compile`; how a run differs from it; its
text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import internal as internal_reasons

FILE = Path(__file__).parent / "table.json"


def internal(answer: dict[str, Any]) -> dict[str, int]:
    """Reasons of a run's breaks, fallbacks and graphs op by op that must not be."""
    found = [item for kind in ("breaks", "fallbacks", "op_by_op") for item in answer.get(kind, {}).items()]
    return {name: count for name, count in found if name.split(":")[0] in internal_reasons.REASONS}


def row(ours: dict[str, Any], theirs: dict[str, Any] | None) -> dict[str, Any]:
    """What the table keeps of a program's runs."""
    status = "internal" if ours["status"] == "right" and internal(ours) else ours["status"]
    kept: dict[str, Any] = {"status": status}
    if status != "right":
        kept["detail"] = ours.get("detail", "")[:300]
    for name in ("graphs", "recompiles", "breaks", "fallbacks"):
        kept[name] = ours.get(name, 0)
    if theirs is not None:
        kept["torch"] = {name: theirs.get(name, 0) for name in ("status", "graphs", "breaks")}
    return kept


def load() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def store(rows: dict[str, Any]) -> None:
    FILE.write_text(json.dumps(dict(sorted(rows.items())), indent=1, sort_keys=True) + "\n")


def worse(name: str, now: dict[str, Any], table: dict[str, Any]) -> str:
    """Why a row is a failure; empty if it is none. A row that the table lacks must be right."""
    if now["status"] != "right":
        return f"{now['status']}: {now.get('detail') or internal(now)}"
    known = table.get(name)
    if known and total(now["breaks"]) > total(known["breaks"]):
        return f"breaks {now['breaks']}, {known['breaks']} in the table"
    return ""


def total(counts: Any) -> int:
    return sum(counts.values()) if isinstance(counts, dict) else counts


def lines(rows: dict[str, Any], seconds: dict[str, float]) -> list[str]:
    """The table as text; the sums are its last line."""
    width = max(map(len, rows), default=0)
    head = f"{'program':{width}}  {'status':8} graphs breaks recompiles fallbacks | torch.compile: status graphs breaks"
    found = [head]
    for name, row in rows.items():
        theirs = row.get("torch") or {}
        found.append(
            f"{name:{width}}  {row['status']:8} {row['graphs']:6} {total(row['breaks']):6} {row['recompiles']:10}"
            f" {total(row['fallbacks']):9} | {theirs.get('status', '-'):>21} {theirs.get('graphs', '-'):>6}"
            f" {theirs.get('breaks', '-'):>6}  {seconds.get(name, 0):.0f} s"
        )
    by = {s: sum(r["status"] == s for r in rows.values()) for s in dict.fromkeys(r["status"] for r in rows.values())}
    sums = [sum(total(r[n]) for r in rows.values()) for n in ("graphs", "breaks")]
    torch = [r["torch"] for r in rows.values() if r.get("torch")]
    right = sum(r["status"] == "right" for r in torch)
    text = ", ".join(f"{count} {status}" for status, count in by.items())
    theirs = [sum(r[name] for r in torch) for name in ("graphs", "breaks")]
    found.append(
        f"{len(rows)} programs: {text}; {sums[0]} graphs, {sums[1]} breaks | "
        f"torch.compile: {right} of {len(torch)} right, {theirs[0]} graphs, {theirs[1]} breaks"
    )
    return found
