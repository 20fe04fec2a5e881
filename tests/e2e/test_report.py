"""What flambeau says of a program: `explain` as text, JSON and a page read in a browser; reasons and their page."""

import ast
import contextlib
import io
import json
import linecache
import logging
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from browser import shown

import flambeau
from flambeau._report import compile_seconds, explanation, stages

pytestmark = pytest.mark.plain_only("about what is told of frames, breaks and lines")

DOCS = Path(__file__).parents[2] / "docs" / "breaks.md"
HERE = Path(__file__).name


def inner(x):
    y = x * 2
    print("inner", end="")
    return y + 1


def looped(x):
    for _ in map(abs, range(2)):
        x = inner(x)
    if x.sum() > 0:
        x = x - 1
    return x


def line_of(function, text):
    """The line of this file where `function` has `text`."""
    source = Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    return first + next(i for i, line in enumerate(source[first - 1 :]) if text in line)


def explained(fn, *calls, **options):
    """What was compiled for `fn` by these calls."""
    compiled = flambeau.compile(fn, **options)
    with contextlib.redirect_stdout(io.StringIO()):
        for arguments in calls:
            compiled(*arguments)
    return explanation(compiled)


@pytest.fixture
def looping():
    """The explanation of `looped` for two sizes and both sides of its branch."""
    return explained(looped, (torch.ones(2, 3),), (torch.ones(4, 3),), (torch.ones(4, 3) * -9,))


def test_frames_are_a_tree(looping):
    codes = looping.data["codes"]
    assert [c["kind"] for c in codes] == ["function"] + ["resume function"] * (len(codes) - 1)
    assert codes[0]["parent"] is None
    assert all(0 <= c["parent"] < len(codes) for c in codes[1:])
    whens = Counter(c["when"] for c in codes[1:])
    assert whens["where it is true"] == whens["where it is false"] == whens["in the loop"] == 1
    behind = next(c for c in codes if c["when"] == "behind it")
    assert behind["after"]["line"] == line_of(inner, "print") and "print" in behind["after"]["text"]
    text = str(looping)
    after = [text.index("looped ("), text.index("in inner\n"), text.index(", behind the loop\n")]
    assert after == sorted(after)


def test_breaks_are_told_once_per_line_with_their_counts(looping):
    breaks = {b["reason"]: b for b in looping.data["breaks"]}
    assert len(breaks) == len(looping.data["breaks"]) == 3
    call = breaks["unsupported_call"]
    assert (call["count"], call["kind"], breaks["data_dependent_jump"]["kind"]) == (6, "resume", "branch")
    assert breaks["data_dependent_jump"]["count"] == 3
    assert [(s["function"], s["line"], s["text"]) for s in call["stack"]] == [
        ("looped", line_of(looped, "inner(x)"), "x = inner(x)"),
        ("inner", line_of(inner, "print"), 'print("inner", end="")'),
    ]


def test_graphs_are_python_that_parses(looping):
    graphs = [frame["python"] for frame in looping.data["frames"] if frame["calls"]]
    assert len(graphs) >= 4
    for graph in graphs:
        ast.parse(graph)
        assert re.search(rf"# \S*{HERE}:\d+ in \w+: \S", graph), graph
    assert any('mul: "f32[2, 3]" = x * 2' in graph for graph in graphs)


@pytest.fixture
def grown():
    """The explanation of a function that no test compiled before, for one size and then another."""
    space = {}
    exec(compile(f"def grown(x):\n    return x * {time.time_ns()}.5", "grown.py", "exec"), space)
    return space["grown"], explained(space["grown"], (torch.ones(2, 3),), (torch.ones(4, 3),))


def test_recompiles_name_the_guard_that_failed(grown):
    latest, first = grown[1].data["frames"]
    assert (first["recompiled"], flambeau.counters()["recompiles"]) == ([], 1)
    (guard,) = latest["recompiled"]
    assert guard == "no longer so: arg0 is a torch.Tensor of float32 on cpu, sizes [2, 3], strides [3, 1]"
    assert latest["symbols"] == ["2 <= s0 = arg0.size(0), first 4"]
    assert f"compiled anew, {guard}" in str(grown[1])


def test_stages_are_timed(grown):
    fn, found = grown
    wanted = [
        "cache look-up",
        "snapshot",
        "capture",
        "trace",
        "questions",
        "guard",
        "lower",
        "codegen",
        "total",
        "install",
    ]
    for frame in found.data["frames"]:
        assert frame["origin"] == "compiled" and [name for name, _ in frame["timings"]] == wanted
        assert all(seconds >= 0 for _, seconds in frame["timings"])
        assert dict(stages(frame))["trace"] > 0
    flambeau.reset()
    (again,) = explained(fn, (torch.ones(2, 3),)).data["frames"]
    assert again["origin"] == "cache" and [name for name, _ in again["timings"]] == ["cache look-up", "install"]
    assert compile_seconds(found.data) > 0


def test_a_call_that_is_not_compiled_says_why(tmp_path):
    def endless(x):
        for _ in range(1_000_000):
            x = x + 1
            if x.dim() == 1:
                raise ValueError("one dimension")
        return x

    compiled = flambeau.compile(endless)
    for _ in range(2):
        with pytest.raises(ValueError, match="one dimension"):
            compiled(torch.ones(3))
    found = explanation(compiled)
    (told,) = (b for b in found.data["breaks"] if b["kind"] == "eager")
    assert told["reason"] == "exception" and not told["resumed"] and told["seconds"] > 0
    assert found.data["breaks"][found.data["codes"][0]["not_compiled"][0]] == told
    assert "not compiled: exception: " in str(found)
    document = shown(found.html(), tmp_path)
    (node,) = document.all("details", class_="break")
    assert "the whole call runs as plain Python" in node.text() and 'raise ValueError("one dimension")' in node.text()
    assert document.all("dl")[0].text().startswith("0 graphs")


def test_explain_is_json_and_text():
    found = flambeau.explain(lambda x: x + 1)(torch.ones(3))
    data = json.loads(found.json())
    assert data["breaks"] == [] and data["frames"][0]["calls"] == 1
    assert "return add" in str(found) and "graph of 1 calls" in str(found)
    assert found.html().startswith("<!doctype html>")


def test_lines_of_a_notebook_are_found(monkeypatch):
    """A cell's source is in no file; IPython puts it into `linecache`."""
    source = "def cell(x):\n    print('in a cell')\n    return x + 1\n"
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(source), None, source.splitlines(True), "<cell 1>"))
    space = {}
    exec(compile(source, "<cell 1>", "exec"), space)
    found = explained(space["cell"], (torch.ones(3),))
    assert found.data["breaks"][0]["at"]["text"] == "print('in a cell')"
    assert "# <cell 1>:3 in cell: return x + 1" in str(found)
    with pytest.raises(RuntimeError, match=re.escape("line 2, in cell\n    print('in a cell')\n")):
        explained(space["cell"], (torch.ones(3),), fullgraph=True)


def bert(monkeypatch):
    """BERT whose attention prints, branches on a number and logs, and the function that does."""
    import transformers as hf
    from transformers.models.bert.modeling_bert import BertSelfAttention

    original = BertSelfAttention.forward
    log = logging.getLogger("flambeau.tests.report")
    log.setLevel(logging.INFO)

    def forward(self, hidden_states, *args, **kwargs):
        print("attention", tuple(hidden_states.shape))
        scale = 0.5 if hidden_states.square().sum().item() > 1.0 else 2.0
        log.info("scaled by %s", scale)
        return original(self, hidden_states * scale, *args, **kwargs)

    monkeypatch.setattr(BertSelfAttention, "forward", forward)
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64
    )
    return hf.BertModel(config).eval(), forward


def test_page_of_bert_with_breaks_in_a_browser(monkeypatch, tmp_path):
    model, forward = bert(monkeypatch)
    compiled, output = flambeau.compile(model), io.StringIO()
    with torch.no_grad(), contextlib.redirect_stdout(output):
        for _ in range(3):
            compiled(torch.ones(2, 7, dtype=torch.long))
    found = explanation(compiled)
    document = shown(found.html(), tmp_path)
    told = {}
    for node in document.all("details", class_="break"):
        (summary,) = node.all("summary")
        reason, place = node.attributes["data-reason"], summary.all("span", class_="mono soft")[0].text()
        assert (reason, place) not in told, "a break is told once"
        told[reason, place] = (summary.all("span", class_="count")[0].text(), summary.all("code")[0].text(), node)

    # Each break of the report, and nothing else, with its count and the user's line.
    assert len(told) == len(found.data["breaks"])
    for b in found.data["breaks"]:
        place = "/".join(f"{b['at']['file']}:{b['at']['line']}".split("/")[-2:])
        count = "once" if b["count"] == 1 else f"{b['count']} times"
        assert told[b["reason"], place][:2] == (count, b["at"]["text"] or "")

    # The statements above are among them, with the line they stand on, and were reached as often as they ran.
    ran = output.getvalue().count("attention")
    for reason, text in (
        ("unsupported_call", 'print("attention", tuple(hidden_states.shape))'),
        ("data_dependent_value", "scale = 0.5 if hidden_states.square().sum().item() > 1.0 else 2.0"),
        ("unsupported_call", 'log.info("scaled by %s", scale)'),
    ):
        count, line, node = told[reason, f"e2e/{HERE}:{line_of(forward, text)}"]
        assert line == text
        assert "log" in text or (ran, count) == (12, "12 times")
        assert [li.all("code")[0].text() for li in node.all("li")].count(text) == 1

    facts = {div.all("dt")[0].text(): div.all("dd")[0].text() for div in document.all("dl")[0].all("div")}
    assert facts["graphs"] == str(found.graphs) != "0"
    assert facts["places that break"] == str(len(told))
    assert facts["times reached"] == str(sum(b["count"] for b in found.data["breaks"]))
    assert len(document.all("details", class_="code")) == len(found.data["codes"])


def test_page_needs_nothing_but_itself(grown, tmp_path):
    document = shown(grown[1].html(), tmp_path)
    nodes = document.all()
    assert not {"script", "link", "img", "iframe", "object", "base"} & {node.tag for node in nodes}
    assert not any({"src", "href"} & set(node.attributes) for node in nodes)
    style = document.all("style")[0].text()
    assert "prefers-color-scheme: dark" in style and "url(" not in style and "@import" not in style
    graphs = [node.text() for node in document.all("pre", class_="graph")]
    assert [graph.split("return")[0].count("mul") for graph in graphs] == [1, 1]
    assert [node.text() for node in document.all("p", class_="recompiled")] == [
        f"Compiled anew, {guard}" for guard in grown[1].data["frames"][0]["recompiled"]
    ]


def test_page_with_a_thousand_breaks(looping, tmp_path):
    breaks = looping.data["breaks"]
    for line in range(1000 - len(breaks)):
        more = json.loads(json.dumps(breaks[line % 3]))
        more["at"]["line"] = more["stack"][-1]["line"] = 10_000 + line
        breaks.append(more)
    assert len(shown(looping.html(), tmp_path).all("details", class_="break")) == 1000


def test_command_writes_text_json_and_page(tmp_path):
    (tmp_path / "user.py").write_text(
        "import torch\n\n\ndef f(x):\n    y = x + 1\n    print('in f')\n    return y * 2\n\n\n"
        "torch.compile(f)(torch.ones(3))\n"
    )

    def run(*options):
        command = [sys.executable, "-m", "flambeau", "explain", *options, "user.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "graph break: unsupported_call: print" in run()
    report = json.loads(run("--json", "--html", "report.html").splitlines()[-1])
    assert [b["stack"][-1]["line"] for b in report["compiled"][0]["breaks"]] == [6]
    assert report["compiled"][0]["name"] == "f" and report["counters"]["graphs"] == 2
    page = (tmp_path / "report.html").read_text()
    assert "print(&#x27;in f&#x27;)" in page and "unsupported_call" in page


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print(x.shape)", "unsupported_call"),
        ("x = x if x.sum() > 0 else -x", "data_dependent_jump"),
        ("x = x * x.max().item()", "data_dependent_value"),
        ("flambeau.graph_break()", "user_break"),
    ],
)
def test_exception_log_and_report_name_the_same_code(body, reason, tmp_path):
    script = tmp_path / "user.py"
    script.write_text(
        "import torch, flambeau\n\n\n"
        f"def inner(x):\n    {body}\n    return x + 1\n\n\n"
        "def outer(x):\n    return inner(x) * 2\n\n\n"
        "def strict(x):\n    with flambeau.error_on_graph_break(True):\n        return inner(x) * 2\n\n\n"
        "for fn, options in ((outer, {'fullgraph': True}), (strict, {})):\n"
        "    try:\n        flambeau.compile(fn, **options)(torch.ones(3))\n"
        "    except RuntimeError as error:\n        print(error)\n        print('-----')\n"
        "compiled = flambeau.compile(outer)\ncompiled(torch.ones(3))\n"
        "print(flambeau._report.explanation(compiled).json())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "FLAMBEAU_LOGS": "breaks"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    whole, strict, rest = done.stdout.split("-----\n")
    (found,) = (b for b in json.loads(rest.splitlines()[-1])["breaks"] if b["reason"] == reason)
    assert found["hint"] and found["stack"][-1]["text"] == body
    log = re.sub(r"^\[flambeau breaks\] ", "", done.stderr, flags=re.M)
    for text, outermost in ((whole, "outer"), (strict, "strict"), (log, "outer")):
        assert f"{reason}: {found['detail']}" in text
        assert f'user.py", line 5, in inner\n    {body}' in text
        assert f", in {outermost}\n" in text and text.index(f", in {outermost}\n") < text.index(", in inner\n")
        assert f"Hint: {found['hint']}" in text


def examples():
    """Code and example of each reason on the page that has one to run."""
    page = DOCS.read_text()
    sections = re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page, re.S | re.M)
    return [(code, m[1]) for code, text in sections if (m := re.search(r"```python\n(.*?)```", text, re.S))]


@pytest.mark.parametrize(("code", "program"), examples(), ids=lambda v: v if v.isidentifier() else "")
def test_examples_of_the_page_meet_their_reason(code, program):
    space = {"__name__": "docs"}
    exec(compile(program, "example.py", "exec"), space)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(ValueError, RuntimeError):
        flambeau.compile(space["f"])(torch.arange(1.0, 9.0).reshape(2, 4))
    counts = flambeau.counters()
    assert {**counts["graph_breaks"], **counts["eager_graph_reasons"]}.get(code), counts


def test_the_page_has_examples():
    assert len(examples()) >= 15
