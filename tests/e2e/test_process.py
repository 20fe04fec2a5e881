"""Whole processes: warm starts, daemon deaths, damaged caches, forks, threads, asyncio, redefinition, deletion."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch

import flambeau

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
    actual = flambeau.compile(fn, backend="cpu")(*args)
error = ((actual - expected).abs().max() / expected.abs().max()).item()
ours = [str(w.message) for w in caught if "flambeau" in str(w.message)]
report = {{"error": error, "counters": flambeau.counters(), "warnings": ours, "pid": flambeau.status().get("pid")}}
print(json.dumps(report))
"""


def process(tmp_path, model="transformer_encoder", **environment):
    """Runs the script in a new process on the cache in `tmp_path`; gives what it printed."""
    script = SCRIPT.format(examples=str(ROOT / "examples"), model=model)
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"), "XDG_RUNTIME_DIR": str(tmp_path), **environment}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def place(tmp_path):
    tmp_path.chmod(0o700)
    yield tmp_path
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"), "XDG_RUNTIME_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "flambeau", "stop"], env=env, capture_output=True, timeout=60, check=False)


def hits(report):
    return sum(report["counters"]["cache"]["hits"].values())


def test_second_process_is_warm_and_so_is_one_after_a_restart(place):
    cold = process(place)
    assert cold["error"] <= 1e-5 and hits(cold) == 0
    warm = process(place)
    assert warm["error"] <= 1e-5 and hits(warm) == 1 and warm["counters"]["frames_traced"] == 0
    os.kill(warm["pid"], signal.SIGTERM)
    time.sleep(1)
    restarted = process(place)
    assert restarted["pid"] != warm["pid"]
    assert restarted["error"] <= 1e-5 and hits(restarted) == 1 and restarted["counters"]["frames_traced"] == 0


@pytest.mark.parametrize("damage", ["flip", "truncate", "garbage"])
def test_damaged_cache_gives_right_answers(place, damage):
    first = process(place, model="decoder")
    os.kill(first["pid"], signal.SIGKILL)
    time.sleep(0.5)
    for file in (place / "cache").rglob("*"):
        if file.is_file() and file.stat().st_size:
            data = bytearray(file.read_bytes())
            if damage == "flip":
                for at in range(0, len(data), 97):
                    data[at] ^= 0x55
            elif damage == "truncate":
                data = data[: len(data) // 2]
            else:
                data = bytearray(os.urandom(len(data)))
            file.write_bytes(data)
    again = process(place, model="decoder")
    assert again["error"] <= 1e-5 and not again["warnings"]
    assert hits(process(place, model="decoder")) == 1


def daemon_pid():
    return flambeau.status()["pid"]


def compiled_twice(tag):
    """A fresh function (new code) each call, so that it must be compiled."""
    scope = {}
    exec(f"def f(a):\n    return (a + {tag}).relu() * 2", scope)
    return scope["f"]


@pytest.mark.filterwarnings("ignore:flambeau")
def test_killed_daemon_never_changes_results():
    a = torch.randn(16)
    for i in range(6):
        fn = compiled_twice(i)
        compiled = flambeau.compile(fn)
        killer = threading.Timer(0.002 * i, os.kill, (daemon_pid(), signal.SIGKILL))
        killer.start()
        for _ in range(3):
            assert torch.equal(compiled(a), fn(a))
        killer.join()


@pytest.mark.filterwarnings("ignore:flambeau")
def test_stopped_daemon_meets_the_deadline(monkeypatch):
    with flambeau.config.patch(timeout=1.0):
        pid = daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            fn = compiled_twice(100)
            begun = time.monotonic()
            assert torch.equal(flambeau.compile(fn)(torch.ones(4)), fn(torch.ones(4)))
            assert time.monotonic() - begun < 30
        finally:
            os.kill(pid, signal.SIGCONT)


def test_fork():
    fn = compiled_twice(200)
    compiled = flambeau.compile(fn)
    a = torch.randn(200_000)
    expected = fn(a)
    assert torch.equal(compiled(a), expected)
    pid = os.fork()
    if pid == 0:
        other = compiled_twice(201)
        right = torch.equal(compiled(a), expected) and torch.equal(flambeau.compile(other)(a), other(a))
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((4,), float(i))


@flambeau.compile
def collate(items):
    return torch.stack(items) * 2


def test_data_loader_workers():
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2, collate_fn=collate)
    batches = list(loader)
    assert torch.equal(batches[0][:, 0], torch.tensor([0.0, 2.0, 4.0, 6.0]))


def test_threads():
    functions = [compiled_twice(300 + i) for i in range(4)]
    compiled = [flambeau.compile(f) for f in functions]
    a = torch.randn(1000)
    wrong = []

    def work(k):
        for i in range(20):
            j = (i + k) % 4
            if not torch.equal(compiled[j](a), functions[j](a)):
                wrong.append(j)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_asyncio():
    fn = compiled_twice(400)
    compiled = flambeau.compile(fn)

    async def call(i):
        await asyncio.sleep(0)
        return compiled(torch.full((4,), float(i)))

    async def main():
        return await asyncio.gather(*(call(i) for i in range(8)))

    for i, result in enumerate(asyncio.run(main())):
        assert torch.equal(result, fn(torch.full((4,), float(i))))


def test_redefinition_is_seen():
    scope = {"torch": torch}
    exec("def g(x):\n    return x + 1\ndef f(x):\n    return g(x) * 2", scope)
    compiled = flambeau.compile(scope["f"])
    x = torch.ones(3)
    assert torch.equal(compiled(x), torch.full((3,), 4.0))
    exec("def g(x):\n    return x - 1", scope)
    assert torch.equal(compiled(x), torch.zeros(3))


def test_deleted_model_is_freed():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    compiled = flambeau.compile(model)
    compiled(torch.ones(1, 8))
    gone = weakref.ref(model[0].weight)
    del model, compiled
    gc.collect()
    assert gone() is None
