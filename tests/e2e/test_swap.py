"""`flambeau backend`: what users see of their back ends, and that running programs follow without a restart."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from support import daemon_pid, fresh_function

import flambeau
import plugins

pytestmark = [pytest.mark.plain_only("about what compiles frames, whatever they are"), pytest.mark.slow]

DAEMON = Path(flambeau.__file__).parent / "_bin/flambeaud"


def run(*args, status=0, **variables):
    """What `flambeau backend ARGS` printed."""
    command = [str(DAEMON), "backend", *map(str, args)]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    if status:
        assert done.stderr.count("\n") == 1, "one sentence"
    return done.stdout + done.stderr


def asked(*args, **variables):
    """Its report."""
    return json.loads(run(*args, "--json", **variables))


def listed(**variables):
    """Back ends by name."""
    return {b["name"]: b for b in asked("list", **variables)["backends"]}


@pytest.fixture(autouse=True)
def record(tmp_path, monkeypatch):
    """Each test starts as a user who chose nothing; where the choice will be."""
    monkeypatch.setenv("FLAMBEAU_DATA_DIR", str(tmp_path / "data"))
    with flambeau.config.patch(data_dir=str(tmp_path / "data")):
        yield tmp_path / "data/backends/chosen.json"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The folder of a second back end."""
    folder = tmp_path_factory.mktemp("template")
    plugins.install(folder, "template", "template")
    return folder


def file(folder, name="template", half="compile"):
    return plugins.half(folder, name, half)


def used(compiled):
    """The name and the folder of what compiles calls now, and the bodies of its frames."""
    report = json.loads(flambeau._native.explain_data(compiled))
    return report["backend"], report["plugin"], [frame["body"] for frame in report["frames"]]


def moved(compiled, args, name):
    """Calls until another back end runs the calls, which is in the next moments; all are right. Gives its folder."""
    expected, until = compiled.__wrapped__(*args), time.monotonic() + 10
    while True:
        assert torch.equal(compiled(*args), expected)
        found, folder, bodies = used(compiled)
        if found == name and bodies == ["native"]:
            return folder
        assert time.monotonic() < until, (found, folder, bodies)
        time.sleep(0.01)


def compiles():
    """Frames and kernels that the daemon compiled so far."""
    counts = flambeau.status()["counters"]
    return counts["compiled"], counts["kernels"]


def mapped(folder):
    """Whether a library of this folder is part of this process."""
    return str(folder) in Path("/proc/self/maps").read_text()


def test_the_list_says_what_there_is(template):
    found = listed()
    assert set(found) == {"cpu", "cuda", "opencl", "eager"}
    cpu = found["cpu"]
    assert cpu["default"] and cpu["available"] and cpu["from"] == "shipped" and cpu["memory"] == "host"
    assert cpu["version"] and cpu["devices"][0]["name"] == "CPU" and not found["eager"]["default"]
    assert Path(cpu["compile"]).is_file() and Path(cpu["launch"]).is_file()
    lines = run("list").splitlines()
    assert lines[0].startswith("* cpu ") and lines[0].endswith("(shipped)")
    assert "runs on CPU (x86-64" in lines[1] and lines[1].endswith("in the host's memory")
    assert any(line.startswith("  eager") for line in lines)
    # Through the command of the package, with one that cannot be used.
    alone = listed(FLAMBEAU_PLUGIN_PATH=str(template))["template"]
    assert (alone["from"], alone["default"], alone["available"]) == ("plug-in path", False, True)


def test_a_missing_driver_is_said_in_the_list(tmp_path):
    plugins.install(tmp_path, "absent", "faulty")
    absent = listed(FLAMBEAU_PLUGIN_PATH=str(tmp_path))["absent"]
    assert not absent["available"] and "there is no driver of this device; install one" in absent["why"]


def test_help_teaches():
    text = run("--help")
    assert "follow at their next call" in text and "flambeau backend upgrade cpu" in text and "FLAMBEAU_BACKEND" in text


def test_programs_follow_the_default_and_going_back_compiles_nothing(template, record):
    fn, other = fresh_function(), fresh_function()
    follows, named = flambeau.compile(fn), flambeau.compile(other, backend="cpu")
    args = (torch.randn(6),)
    shipped = moved(follows, args, "cpu")
    moved(named, args, "cpu")
    run("add", file(template))
    assert moved(follows, args, "cpu") == shipped, "what is added is not used yet"
    assert run("use", "template").strip() == "template is the default now, after cpu"
    folder = moved(follows, args, "template")
    assert folder.startswith(str(record.parent)) and mapped(folder)
    known, moves = compiles(), flambeau.counters()["backend_moves"]
    for name in ("cpu", "template") * 3:
        run("use", name)
        moved(follows, args, name)
    counters = flambeau.counters()
    assert compiles() == known, "both are in the cache"
    assert counters["frames_traced"] == 3 and counters["backend_moves"] == moves + 6
    assert not counters["eager_fallbacks"] and not counters["eager_graph_reasons"]
    assert used(named)[0] == "cpu" and torch.equal(named(*args), other(*args))
    # A daemon and a process that are started later go on with it.
    subprocess.run([str(DAEMON), "stop"], capture_output=True, check=True)
    assert used(flambeau.compile(fresh_function()))[0] == "template"


ORDER = """
import json, torch, flambeau

def chosen(backend):
    compiled = flambeau.compile(lambda a: a + 1, backend=backend)
    compiled(torch.ones(3))
    return json.loads(flambeau._native.explain_data(compiled))["backend"]

found = [chosen(None)]
flambeau.config.backend = "template"
found += [chosen(None), chosen("eager")]
print(*found, flambeau.counters()["graphs"])
"""


def test_the_order_in_which_back_ends_are_chosen(template):
    def chosen(**variables):
        command = [sys.executable, "-c", ORDER]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    run("add", template)
    run("use", "eager")
    assert chosen() == ["eager", "template", "eager", "3"]
    assert chosen(FLAMBEAU_BACKEND="cpu") == ["cpu", "template", "eager", "3"]
    assert "goes before the default: cpu" in run("list", FLAMBEAU_BACKEND="cpu")


def test_a_new_build_is_used_at_the_next_call_and_removed_again(tmp_path, record):
    fn, other = fresh_function(), fresh_function()
    follows, named = flambeau.compile(fn), flambeau.compile(other, backend="cpu")
    args = (torch.randn(6),)
    shipped = moved(follows, args, "cpu")
    assert moved(named, args, "cpu") == shipped
    source = tmp_path / "new"
    plugins.rebuild(source, "cpu", "0.9.1")
    assert run("upgrade", "cpu", source).strip() == "cpu is 0.9.1 now, for programs that run too"
    shutil.rmtree(source)
    while used(follows)[1] == shipped:
        time.sleep(0.01)
    build = moved(follows, args, "cpu")
    assert moved(named, args, "cpu") == build and mapped(build) and build.startswith(str(record.parent))
    row = listed()["cpu"]
    assert (row["version"], row["from"], row["hides"]) == ("0.9.1", "added", [shipped])
    known = compiles()
    assert "the build that it stood for is used again" in run("remove", "cpu")
    while used(follows)[1] == build:
        time.sleep(0.01)
    assert moved(follows, args, "cpu") == moved(named, args, "cpu") == shipped
    assert compiles() == known, "the old build's are still there"
    assert not flambeau.counters()["eager_fallbacks"]
    assert "is shipped with flambeau and stays" in run("remove", "cpu", status=1)


def test_launches_under_way_end_on_the_build_that_they_began_on(tmp_path):
    plugins.rebuild(tmp_path / "new", "cpu", "0.9.2")
    fn = fresh_function()
    compiled, a, done, wrong = flambeau.compile(fn, backend="cpu"), torch.randn(1 << 22), threading.Event(), []
    expected = fn(a)
    compiled(a)

    def call():
        while not done.is_set():
            if not torch.equal(compiled(a), expected):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            run("upgrade", "cpu", tmp_path / "new")
            time.sleep(0.2)
            run("remove", "cpu")
            time.sleep(0.2)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert flambeau.counters()["backend_moves"] >= 4


@pytest.mark.parametrize("half", plugins.HALVES)
@pytest.mark.parametrize("how", plugins.DAMAGES)
def test_what_is_damaged_is_refused_and_the_old_build_stays(tmp_path, template, record, how, half):
    run("add", template)
    before = record.read_text()
    plugins.install(tmp_path, "template", "template")
    plugins.seal(tmp_path, "template")
    plugins.spoil(file(tmp_path, half=half), how)
    said = run("upgrade", "template", tmp_path, status=1)
    assert str(file(tmp_path, half=half)) in said, "the user's own file is named"
    assert "the template that was there stays" in said
    assert any(words in said for words in plugins.DAMAGES[how][1].replace("\\", "").split("|")), said
    assert record.read_text() == before and listed()["template"]["available"]
    assert not [p for p in record.parent.iterdir() if p.name.startswith(".new")]


def test_what_else_is_refused_says_what_to_do(tmp_path, template, record):
    assert "no back end is called nonsense; there are cpu, cuda, opencl, eager" in run("use", "nonsense", status=1)
    assert "no back end is called template" in run("upgrade", "template", template, status=1)
    assert "no back end is called template" in run("remove", "template", status=1)
    known_by_path = run("use", "template", status=1, FLAMBEAU_PLUGIN_PATH=str(template))
    assert "known here only by FLAMBEAU_PLUGIN_PATH" in known_by_path and "backend add" in known_by_path
    run("add", template)
    assert "`flambeau backend upgrade template FILE`" in run("add", template, status=1)
    assert "is not named as plug-ins are" in run("add", tmp_path / "x.so", status=1)
    assert "holds no plug-in" in run("add", tmp_path, status=1)
    assert f"{file(template)} is of template, not of cpu" in run("upgrade", "cpu", file(template), status=1)
    shutil.copy(file(template), file(tmp_path, "other"))
    assert "does not exist; both halves are needed" in run("add", file(tmp_path, "other"), status=1)
    shutil.copy(file(template, half="launch"), file(tmp_path, "other", "launch"))
    assert "says that its name is template; call both files libflambeau_template" in run("add", tmp_path, status=1)
    plugins.rebuild(tmp_path / "mixed", "template", "0.9.9")
    shutil.copy(file(template), tmp_path / "mixed")
    assert "are of versions 0.1.0 and 0.9.9; bring two files of one build" in run(
        "upgrade", "template", tmp_path / "mixed", status=1
    )
    plugins.install(tmp_path, "absent", "faulty")
    assert "there is no driver of this device; install one" in run("add", file(tmp_path, "absent"), status=1)
    plugins.install(tmp_path, "hang_at_once", "faulty")
    assert "gave no answer in 1 s" in run("add", file(tmp_path, "hang_at_once"), "--kernel-timeout", "1", status=1)
    record.write_text("{")
    for command in (("use", "cpu"), ("add", file(template))):
        assert "is damaged" in (said := run(*command, status=1)) and "delete it" in said
    assert "your choice cannot be read" in run("list")


def test_what_is_removed_is_the_default_no_more(template):
    run("add", template)
    run("use", "template")
    compiled, args = flambeau.compile(fresh_function()), (torch.randn(5),)
    moved(compiled, args, "template")
    assert run("remove", "template").strip() == "template was removed; it was the default, which is cpu again"
    moved(compiled, args, "cpu")
    assert "template" not in listed()


def test_without_a_daemon_the_files_are_changed_and_programs_follow(template):
    compiled, args = flambeau.compile(fresh_function()), (torch.randn(5),)
    moved(compiled, args, "cpu")
    subprocess.run([str(DAEMON), "stop"], capture_output=True, check=True)
    run("add", template)
    said = asked("use", "template")
    assert said["daemon"] is None and not flambeau.status()["running"], "none is started"
    moved(compiled, args, "template")


def test_a_daemon_of_another_cache_tells_its_clients_too(template, tmp_path):
    with flambeau.config.patch(cache_dir=str(tmp_path / "cache")):
        compiled, args = flambeau.compile(fresh_function()), (torch.randn(5),)
        moved(compiled, args, "cpu")
        pid = daemon_pid()
        run("add", template)
        run("use", "template")
        moved(compiled, args, "template")
        os.kill(pid, signal.SIGTERM)


@pytest.mark.provokes_internal("a damaged back end cannot be installed")
def test_a_default_that_cannot_run_here_is_said_once_and_results_are_right(template):
    run("add", template)
    run("use", "template")
    folder = Path(listed()["template"]["launch"]).parent
    plugins.spoil(file(folder, half="launch"), "truncated")
    functions, a = [fresh_function() for _ in range(2)], torch.randn(9)
    compiled = [flambeau.compile(fn) for fn in functions]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            for fn, one in zip(functions, compiled, strict=True):
                assert torch.equal(one(a), fn(a))
    texts = [str(w.message) for w in said]
    assert len(texts) == 1 and "is cut off" in texts[0], texts
    assert flambeau.counters()["eager_fallbacks"]["install_failed"] == 2
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        shutil.rmtree(folder)
        run("use", "cpu")
        for one in compiled:
            moved(one, (a,), "cpu")
        gone = flambeau.compile(fresh_function(), backend="template")
        gone(a)
    texts = [str(w.message) for w in said]
    assert len(texts) == 1 and "`flambeau backend upgrade template FILE` brings another" in texts[0], texts


def test_a_compile_in_the_worker_ends_on_the_build_that_it_began_on(template, tmp_path):
    """The template is changed again and again while functions are compiled for it."""
    plugins.rebuild(tmp_path / "new", "template", "0.9.3")
    run("add", template)
    run("use", "template")
    done, said = threading.Event(), []

    def swap():
        try:
            while not done.is_set():
                for source in (tmp_path / "new", template):
                    run("upgrade", "template", source)
        except AssertionError as error:
            said.append(error)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            fn, a = fresh_function(), torch.randn(7)
            assert torch.equal(flambeau.compile(fn)(a), fn(a))
    finally:
        done.set()
        thread.join()
    assert not said
    counters = flambeau.counters()
    assert counters["graphs"] > 20 and not counters["eager_fallbacks"] and not counters["eager_graph_reasons"], counters


def test_commands_that_are_killed_leave_the_old_state_or_the_new_one(template, tmp_path, record):
    plugins.rebuild(tmp_path / "new", "template", "0.9.4")
    run("add", template)
    versions, rng = set(), random.Random(0)
    for _ in range(25):
        source = rng.choice([template, tmp_path / "new"])
        command = [str(DAEMON), "backend", "upgrade", "template", str(source)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.random() * 0.12)
        process.kill()
        process.wait()
        chosen = json.loads(record.read_text())
        folder = record.parent / "template" / chosen["added"]["template"]
        contents = [
            b"".join(file(f, half=h).read_bytes() for h in plugins.HALVES) for f in (folder, template, tmp_path / "new")
        ]
        assert contents[0] in contents[1:]
        versions.add(contents.index(contents[0], 1))
    row = listed()["template"]
    assert row["available"] and row["version"] in ("0.1.0", "0.9.4")
    run("upgrade", "template", template)
    assert {p.name for p in record.parent.iterdir()} <= {"chosen.json", "lock", "template"}


def test_commands_at_once_take_turns(template, tmp_path):
    sources = [template]
    for i in range(3):
        plugins.rebuild(tmp_path / str(i), "template", f"0.8.{i}")
        sources.append(tmp_path / str(i))
    run("add", template)
    commands = [["upgrade", "template", str(source)] for source in sources]
    commands += [["use", "template"], ["use", "cpu"]]
    started = [
        subprocess.Popen([str(DAEMON), "backend", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for command in commands
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), said
    found = listed()
    assert found["template"]["available"] and found["template"]["version"] in ("0.1.0", "0.8.0", "0.8.1", "0.8.2")
    assert sum(b["default"] for b in found.values()) == 1


def test_swaps_under_load():
    """A slice of `tests/bench/swap.py`."""
    script = plugins.ROOT / "tests/bench/swap.py"
    command = [sys.executable, str(script), "--clients", "2", "--swaps", "8", "--upgrades", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and found["moves"] >= 2 * (8 + 2) and found["calls"] > 100, found
