"""The page of `flambeau explain --html`: static HTML with its style inside, nothing to load and nothing to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flambeau._report import backend_title, compile_seconds, frames_of, place, stages, title, tree

if TYPE_CHECKING:
    from flambeau._report import Explanation

#: Stages in the order of their colours.
STAGES = (
    "cache look-up",
    "snapshot",
    "trace",
    "questions",
    "guard",
    "lower",
    "codegen",
    "install",
    "capture",
    "other",
)
#: How a frame goes on at a break, in words.
KINDS = {
    "resume": "goes on behind it",
    "tail": "its value is the function's",
    "branch": "goes on on the side it takes",
    "loop": "goes on in the loop",
    "eager": "the whole call runs as plain Python",
}
#: The folders of a location's file but for the last, in a comment of a graph.
_LOCATION = re.compile(r"(?<=^    # )\S*/(?=[^/\s]+/[^/\s]+:\d+ in )", re.M)
#: Compiles shown in the timeline; the longest are kept.
MOST_COMPILES = 200


def page(explanations: Sequence[Explanation], counts: dict[str, Any]) -> str:
    """The whole page."""
    style = (Path(__file__).parent / "_page.css").read_text()
    names = ", ".join(e.name for e in explanations if e.name) or "nothing"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>flambeau: {escape(names)}</title><style>{style}</style></head><body>",
        f"<h1>What flambeau made of {escape(names)}</h1>",
        *_summary(explanations, counts),
    ]
    for explanation in explanations:
        if len(explanations) > 1:
            parts.append(f"<h2>{escape(explanation.name)}</h2>")
        parts.append(f'<p class="backend">{escape(backend_title(explanation.data))}</p>')
        parts += _breaks(explanation.data["breaks"])
        parts += _timeline(explanation.data)
        parts += _codes(explanation.data)
    parts += _counts(counts)
    return "\n".join(parts) + "\n</body></html>\n"


def _summary(explanations: Sequence[Explanation], counts: dict[str, Any]) -> Iterator[str]:
    frames = [frame for e in explanations for frame in e.data["frames"]]
    breaks = [found for e in explanations for found in e.data["breaks"]]
    hits = counts["cache"]["hits"]
    facts = [
        ("graphs", sum(e.graphs for e in explanations)),
        ("calls in them", sum(frame["calls"] for frame in frames)),
        ("places that break", len(breaks)),
        ("times reached", sum(found["count"] for found in breaks)),
        ("compile time", _time(sum(compile_seconds(e.data) for e in explanations))),
        ("frames from the cache", sum(frame["origin"] == "cache" for frame in frames)),
        ("calls served by known frames", hits.get("process", 0)),
        ("recompiles", sum(bool(frame["recompiled"]) for frame in frames)),
    ]
    yield '<dl class="facts" id="summary">'
    yield from (f"<div><dd>{escape(str(value))}</dd><dt>{name}</dt></div>" for name, value in facts)
    yield "</dl>"


def _breaks(breaks: list[dict[str, Any]]) -> Iterator[str]:
    yield "<h3>Graph breaks, by line</h3>"
    if not breaks:
        yield '<p class="soft">None: each call is one graph.</p>'
    for found in sorted(breaks, key=lambda b: -b["count"]):
        yield from _break(found)


def _break(found: dict[str, Any]) -> Iterator[str]:
    nowhere = {"file": "?", "line": 0, "text": None}
    where: dict[str, Any] = found["at"] or nowhere
    yield f'<details class="break" data-reason="{escape(found["reason"])}" data-count="{found["count"]}">'
    yield f'<summary><span class="count">{_times(found["count"])}</span>'
    yield _reason(found)
    yield f'<br><span class="mono soft">{escape(_short(place(where)))}</span>'
    yield f' <code class="line">{escape(where["text"] or "")}</code></summary>'
    yield f"<p>{escape(found['explanation'])} <b>What to do:</b> {escape(found['hint'])}</p>"
    yield f'<p class="soft">{KINDS[found["kind"]]}</p><ol class="stack">'
    for at in found["stack"]:
        yield f'<li><span class="mono soft">{escape(place(at))}</span> in {escape(at["function"])}'
        yield f"<code>{escape(at['text'] or '')}</code></li>"
    yield "</ol></details>"


def _reason(found: dict[str, Any]) -> str:
    return f'<span class="reason">{escape(found["reason"])}</span> {escape(found["detail"])}'


def _timeline(data: dict[str, Any]) -> Iterator[str]:
    compiles = [(frame, stages(frame)) for frame in data["frames"]]
    if not compiles:
        return  # What came to nothing is in the summary.
    spent = {name: sum(s for _, all in compiles for n, s in all if n == name) for name in STAGES}
    yield "<h3>Compile time, by stage</h3>"
    yield '<div class="legend">'
    for index, name in enumerate(STAGES):
        if spent[name] > 0:
            yield f'<span><i style="background:var(--s{index})"></i>{name} {_time(spent[name])}</span>'
    failed = sum(found["seconds"] for found in data["breaks"])
    if failed > 0:
        yield f'<span><i style="background:var(--bar)"></i>compiles that came to nothing {_time(failed)}</span>'
    yield "</div>"
    names = {code["id"]: escape(_title(code)) for code in data["codes"]}
    longest = max(sum(s for _, s in all) for _, all in compiles) or 1.0
    kept = sorted(compiles, key=lambda c: -sum(s for _, s in c[1]))[:MOST_COMPILES]
    yield '<details><summary>Each compile</summary><table><tr><th class="number">begun</th><th>frame</th>'
    yield '<th>from</th><th class="number">took</th><th></th></tr>'
    for frame, all in sorted(kept, key=lambda c: c[0]["begun"]):
        total = sum(s for _, s in all)
        bars = "".join(
            f'<i title="{name} {_time(s)}" style="width:{100 * s / (total or 1):.2f}%;'
            f'background:var(--s{STAGES.index(name)})"></i>'
            for name, s in all
        )
        frame_name = names[frame["code"]]
        yield f'<tr><td class="number soft">{frame["begun"]:.3f} s</td>'
        yield f'<td class="name" title="{frame_name}">{frame_name}</td>'
        yield f'<td class="soft">{frame["origin"]}</td><td class="number">{_time(total)}</td>'
        yield f'<td class="track"><div class="bars" style="width:{100 * total / longest:.2f}%">{bars}</div></td></tr>'
    yield "</table>"
    if len(compiles) > len(kept):
        yield f'<p class="soft">{len(compiles) - len(kept)} shorter ones are not shown.</p>'
    yield "</details>"


def _codes(data: dict[str, Any]) -> Iterator[str]:
    yield "<h3>Frames</h3>"
    for code, depth in tree(data["codes"]):
        frames = frames_of(data, code)
        calls = sum(frame["calls"] for frame in frames)
        yield f'<details class="code" style="margin-left:{min(depth, 12) * 1.1:.1f}rem">'
        yield f'<summary><span class="count">{len(frames)} compiled, {calls} calls</span>'
        line = code["after"]["text"] or "" if code["after"] else ""
        yield f'<span class="mono">{escape(_title(code))} <span class="soft">{escape(line)}</span></span></summary>'
        yield f'<p class="soft">{code["kind"]}, {escape(code["file"])}:{code["line"]}</p>'
        for index in code["not_compiled"]:
            found = data["breaks"][index]
            yield f"<p>not compiled: {_reason(found)}</p>"
        for frame in frames:
            yield from _frame(frame, data["breaks"])
        yield "</details>"


def _frame(frame: dict[str, Any], breaks: list[dict[str, Any]]) -> Iterator[str]:
    made = f"{frame['body']}, {frame['kernels']} kernels" if frame["body"] == "native" else frame["body"]
    yield f'<h3>Graph of {frame["calls"]} calls <span class="soft">({escape(made)}; {frame["origin"]})</span></h3>'
    for guard in frame["recompiled"]:
        yield f'<p class="recompiled">Compiled anew, {escape(guard)}</p>'
    if frame["fallback"]:
        yield f"<p>Runs op by op: {escape(frame['fallback'].splitlines()[0])}</p>"
    if frame["calls"]:
        graph = _LOCATION.sub("", frame["python"].rstrip())
        yield f'<pre class="graph">{escape(graph)}</pre>'
    if frame["break"] is not None:
        found = breaks[frame["break"]]
        where = f" at {escape(_short(place(found['at'])))}" if found["at"] else ""
        yield f"<p>Breaks off{where}: {_reason(found)}</p>"
    guards = "\n".join([*frame["symbols"], *frame["guards"]])
    yield f"<details><summary>{len(frame['guards'])} guards</summary><pre>{escape(guards)}</pre></details>"
    if frame["plan"]:
        yield f"<details><summary>plan</summary><pre>{escape(frame['plan'].rstrip())}</pre></details>"


def _counts(counts: dict[str, Any]) -> Iterator[str]:
    yield "<h3>Counters of the process</h3><table>"
    for name, value in counts.items():
        yield f'<tr><td>{escape(name)}</td><td class="mono">{escape(_count(value) or "none")}</td></tr>'
    yield "</table>"


def _count(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} ({_count(v)})" if isinstance(v, dict) else f"{name} {v}" for name, v in value.items())


def _title(code: dict[str, Any]) -> str:
    at = code["after"] or code
    return title(code, _short(place(at)))


def _short(path: str) -> str:
    """The last two parts of a path."""
    return "/".join(path.split("/")[-2:])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
