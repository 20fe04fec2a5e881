"""The daemon as a process: warm starts, kills, stops, damaged caches. Results never change; one warning each."""

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
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from support import daemon_pid, fresh_function

import flambeau

pytestmark = pytest.mark.plain_only("runs scripts in processes of their own")

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys, warnings
import torch
sys.path.insert(0, {examples!r})
import models
fn, args = models.build({model!r}, 1)
import flambeau
with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter("always")
    expected = fn(*args)
    actual = flambeau.compile(fn, backend={backend!r})(*args)
error = ((actual - expected).abs().max() / expected.abs().max()).item()
ours = [str(w.message) for w in caught if "flambeau" in str(w.message)]
report = {{"error": error, "counters": flambeau.counters(), "warnings": ours, "pid": flambeau.status().get("pid")}}
print(json.dumps(report))
"""


def process(tmp_path, model="transformer_encoder", backend="cpu"):
    """Runs the script in a new process on the cache in `tmp_path`; gives what it printed."""
    script = SCRIPT.format(examples=str(ROOT / "examples"), model=model, backend=backend)
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def place(tmp_path):
    """A folder for a cache and a socket, whose daemon is stopped at the end."""
    tmp_path.chmod(0o700)
    yield tmp_path
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"), "XDG_RUNTIME_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "flambeau", "stop"], env=env, capture_output=True, timeout=60, check=False)


def hits(report):
    return sum(report["counters"]["cache"]["hits"].values())


def gone(pid):
    """Whether the process ended; its entry may wait for a parent to look at it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < 30
        time.sleep(0.01)


@contextmanager
def our_warnings():
    """Collects texts of flambeau's warnings."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught if "flambeau" in str(w.message)]


@pytest.mark.parametrize("backend", ["cpu", "opencl"])
def test_second_process_is_warm_and_so_is_one_after_a_restart(place, backend):
    cold = process(place, backend=backend)
    assert cold["error"] <= 1e-5 and hits(cold) == 0
    warm = process(place, backend=backend)
    assert warm["error"] <= 1e-5 and hits(warm) == 1 and warm["counters"]["frames_traced"] == 0
    os.kill(warm["pid"], signal.SIGTERM)
    wait_until(lambda: gone(warm["pid"]))
    restarted = process(place, backend=backend)
    assert restarted["pid"] != warm["pid"]
    for report in (cold, warm, restarted):
        assert not report["warnings"] and not report["counters"]["eager_graph_reasons"]
    assert restarted["error"] <= 1e-5 and hits(restarted) == 1 and restarted["counters"]["frames_traced"] == 0


def compile_all(functions, a):
    """Calls all functions compiled afresh; gives hits and misses of the daemon's cache."""
    flambeau.reset()
    for fn in functions:
        assert torch.equal(flambeau.compile(fn)(a), fn(a))
    counts = flambeau.counters()
    assert not counts["eager_fallbacks"], counts
    return counts["cache"]["hits"].get("daemon", 0), counts["cache"]["misses"].get("daemon", 0)


def damage(file, how, rng):
    data = bytearray(file.read_bytes())
    match how:
        case "flip a byte":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case "flip many":
            for at in range(0, len(data), 97):
                data[at] ^= 0x55
        case "truncate":
            data = data[: len(data) // 2]
        case "garbage":
            data = bytearray(rng.randbytes(len(data)))
        case "empty":
            data = bytearray()
    file.write_bytes(data)


@pytest.mark.parametrize("how", ["flip a byte", "flip many", "truncate", "garbage", "empty"])
def test_damaged_cache_gives_right_answers(tmp_path, how):
    """Each file of the cache in turn, then all of them: right results, a counted miss, and a whole cache again."""
    rng = random.Random(how)
    a = torch.randn(64)
    functions = [fresh_function() for _ in range(3)]
    cache, whole = tmp_path / "cache", tmp_path / "whole"
    with flambeau.config.patch(cache_dir=str(cache)), our_warnings() as said:
        assert compile_all(functions, a) == (0, 3)
        assert compile_all(functions, a) == (3, 0)
        pid = daemon_pid()
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: gone(pid))
        shutil.copytree(cache, whole)
        files = sorted(f.relative_to(whole) for f in whole.rglob("*") if f.is_file() and f.stat().st_size)
        files = [f for f in files if f.suffix not in (".log", ".lock")]
        for chosen in [*([f] for f in files), files]:
            shutil.rmtree(cache)
            shutil.copytree(whole, cache)
            for file in chosen:
                damage(cache / file, how, rng)
            daemon_pid()
            found, missed = compile_all(functions, a)
            assert found + missed == 3, chosen
            assert compile_all(functions, a) == (3, 0), chosen
            pid = daemon_pid()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: gone(pid))
        assert missed == 3
    assert not [text for text in said if "daemon_lost" not in text]


def test_killed_daemon_never_changes_results():
    """Twenty times, at random moments before, during and after a compile."""
    rng = random.Random(0)
    a = torch.randn(16)
    for _ in range(20):
        flambeau.reset()
        fn = fresh_function()
        pid = daemon_pid()
        compiled = flambeau.compile(fn)
        killer = threading.Timer(rng.uniform(0, 0.05), os.kill, (pid, signal.SIGKILL))
        with our_warnings() as said:
            killer.start()
            for _ in range(5):
                assert torch.equal(compiled(a), fn(a))
                time.sleep(rng.uniform(0, 0.02))
            killer.join()
            assert torch.equal(compiled(a), fn(a))
        assert len(said) <= 1, said
    flambeau.reset()
    daemon_pid()
    fn = fresh_function()
    assert torch.equal(flambeau.compile(fn)(a), fn(a))
    assert flambeau.counters()["graphs"] == 1


def test_stopped_daemon_meets_the_deadline():
    """A daemon that is stopped costs one deadline; calls after it do not wait; it is used again once it continues."""
    rng = random.Random(1)
    a = torch.ones(4)
    for _ in range(20):
        flambeau.reset()
        pid = daemon_pid()
        with flambeau.config.patch(timeout=0.4), our_warnings() as said:
            timer = threading.Timer(rng.uniform(0, 0.03), os.kill, (pid, signal.SIGSTOP))
            timer.start()
            try:
                begun = time.monotonic()
                for _ in range(30):
                    fn = fresh_function()
                    assert torch.equal(flambeau.compile(fn)(a), fn(a))
                assert time.monotonic() - begun < 30 * 0.4
                timer.join()
            finally:
                os.kill(pid, signal.SIGCONT)
        assert len(said) <= 1, said
        assert daemon_pid() == pid
    flambeau.reset()
    fn = fresh_function()
    assert torch.equal(flambeau.compile(fn)(a), fn(a))
    assert flambeau.counters()["graphs"] == 1


LONG = """
import json, torch, flambeau

def f(x):
    items = list(range(60_000))
    found = 0
    for i in range(20_000):
        found += (-1 - i) in items
    return x + found

with flambeau.config.patch(timeout=2.0):  # the daemon's, which this starts
    flambeau.compile(lambda x: x + 1)(torch.ones(2))
with flambeau.config.patch(timeout=100.0):
    compiled = flambeau.compile(f)
    result = compiled(torch.ones(2)).tolist()
    explained = str(flambeau.explain(compiled)(torch.ones(2)).data)
    after = flambeau.compile(lambda x: x - 1)(torch.ones(2)).tolist()
print(json.dumps([result, after, explained]))
"""


def test_a_trace_that_takes_too_long_ends(place):
    """With the reason that says so; the daemon goes on."""
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(place / "cache"), "XDG_RUNTIME_DIR": str(place)}
    command = [sys.executable, "-c", LONG]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    result, after, explained = json.loads(done.stdout.splitlines()[-1])
    assert result == [1.0, 1.0] and after == [0.0, 0.0]
    assert "too_large" in explained and "FLAMBEAU_TIMEOUT" in explained, done.stderr


SHARER = """
import sys, time, torch, flambeau
scope = {}
exec(sys.argv[1], scope)
print("ready", flush=True)
sys.stdin.readline()
print(flambeau.compile(scope["f"])(torch.ones(4)).tolist(), flush=True)
"""


def test_a_stopped_client_does_not_hold_up_another():
    """Both ask for the same compile; the one that answers the daemon's questions is stopped."""
    daemon_pid()
    source = "def f(a):\n" + "".join(f"    a = (a + {i}.5).relu()\n" for i in range(200)) + "    return a"
    client = subprocess.Popen(
        [sys.executable, "-c", SHARER, source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert client.stdout.readline().strip() == "ready"
        client.stdin.write("\n")
        client.stdin.flush()
        time.sleep(0.02)
        os.kill(client.pid, signal.SIGSTOP)
        scope = {}
        exec(source, scope)
        a = torch.ones(4)
        with flambeau.config.patch(timeout=5.0):
            assert torch.equal(flambeau.compile(scope["f"])(a), scope["f"](a))
        os.kill(client.pid, signal.SIGCONT)
        assert json.loads(client.stdout.readline()) == scope["f"](a).tolist()
    finally:
        os.kill(client.pid, signal.SIGCONT)
        client.kill()
        client.wait()


def test_status_says_whether_a_daemon_runs(tmp_path):
    with flambeau.config.patch(cache_dir=str(tmp_path / "cache")):
        assert flambeau.status() == {"running": False}
        pid = daemon_pid()
        status = flambeau.status()
        assert status["running"] and status["pid"] == pid and status["cache_dir"] == str(tmp_path / "cache")
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: gone(pid))
        assert flambeau.status() == {"running": False}
