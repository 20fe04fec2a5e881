"""The OpenCL back end on a real driver (PoCL): models, threads, forks, what stays behind, machines without a driver."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import models
import pytest
import torch
from support import assert_same, check, native

import flambeau
from flambeau import _check

pytestmark = [pytest.mark.plain_only("compiles slowly, and does the same whatever the frames are"), pytest.mark.slow]


@pytest.mark.parametrize("name", list(models.CASES))
def test_models(name):
    fn, args = models.build(name, 1)
    with torch.no_grad():
        args = tuple(a[:20_000] for a in args) if name == "seawater" else args
        compiled = flambeau.compile(fn, backend="opencl")
        for _ in range(2):
            assert_same(native(compiled, *args), fn(*args))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32], ids=str)
def test_dtypes_and_layouts(dtype):
    def f(a, b):
        c = (a * 2 + b.t()).clamp(-3, 5)
        return c, c.sum(-1), c.flip(0)[::2], torch.where(c > 1, c, a.mT.reshape(c.shape))

    def made(*shape):
        return (torch.randn(*shape) * 3).to(dtype)

    check(f, (made(37, 21), made(21, 37)), backend="opencl")


def test_sizes_that_are_not_known_and_none():
    def f(a):
        return torch.softmax(a, -1), a.amax(0) if a.shape[0] else a.sum(0)

    compiled = flambeau.compile(f, backend="opencl", dynamic=True)
    for sizes in ((3, 5), (4, 1000), (0, 7), (300, 700), (2, 0)):
        a = torch.randn(sizes)
        assert_same(native(compiled, a), f(a))


def test_more_elements_than_32_bits_count():
    def f(a):
        return a.expand(2**31 + 5).sum(dtype=torch.int64)

    assert native(flambeau.compile(f, backend="opencl"), torch.ones(1, dtype=torch.int8)) == 2**31 + 5


def test_conformance():
    """One slice, as the driver takes long for each kernel: `flambeau plugin check` does all."""
    plugin = Path(flambeau.__file__).parent / "_plugins/libflambeau_opencl_launch.so"
    report = _check.check(str(plugin), "f32, rows")
    assert report.ok and report.count("passed") == 16, str(report)


def test_threads():
    def f(a):
        return torch.softmax(a * 3, -1) + a.sum()

    compiled, wrong = flambeau.compile(f, backend="opencl"), []

    def work(seed):
        a = torch.randn(64, 500, generator=torch.Generator().manual_seed(seed))
        expected = f(a)
        wrong.extend(seed for _ in range(30) if not torch.allclose(compiled(a), expected, rtol=1e-5, atol=1e-5))

    native(compiled, torch.randn(64, 500))
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not flambeau.counters()["eager_fallbacks"]


PROGRAM = """
import json, os, sys, time, warnings
import torch, flambeau

def f(a):
    return (a * 3).relu() + {number}

def tell():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = flambeau.compile(f, backend="opencl")
        for _ in range(2):
            torch.testing.assert_close(compiled(a), f(a))
    said = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    counts = flambeau.counters()
    fell = sum(counts["eager_fallbacks"].values()) + sum(counts["eager_graph_reasons"].values())
    print(json.dumps(dict(said=said, fell=fell, pid=flambeau.status().get("pid"))), flush=True)

a = torch.randn(40, 60)
"""
FORKED = """
if {first}:
    tell()
child = os.fork()
if child == 0:
    tell()
    os._exit(0)
deadline = time.monotonic() + 60
while os.waitpid(child, os.WNOHANG) == (0, 0):
    assert time.monotonic() < deadline, os.kill(child, 9)
    time.sleep(0.01)
tell()
"""


@pytest.fixture
def place():
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        yield Path(folder)


@pytest.fixture
def run(place):
    """Runs a program in a home, a folder for files and with a daemon of its own: what it told, line by line."""
    (place / "files").mkdir()
    (place / "home").mkdir()
    own = {"FLAMBEAU_CACHE_DIR": "cache", "XDG_RUNTIME_DIR": "", "TMPDIR": "files", "HOME": "home"}
    env = {**os.environ, **{key: str(place / value) for key, value in own.items()}}
    env.pop("XDG_CACHE_HOME", None)

    def run(program, number=1, **more):
        program = PROGRAM.replace("{number}", str(number)) + program
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env={**env, **more}, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    yield run
    subprocess.run([sys.executable, "-m", "flambeau", "stop"], env=env, capture_output=True, timeout=60, check=False)


def test_nothing_is_left_behind(run, place):
    def folders():
        return [*(place / "files").glob("flambeau-opencl-*")]

    (told,) = run("tell()")
    assert not told["said"] and not told["fell"]
    # Those of the workers, which live on with the daemon.
    workers = folders()
    (again,) = run("tell()")
    assert not again["said"] and again["pid"] == told["pid"]
    assert folders() == workers and not [*(place / "home").rglob("*")]


@pytest.mark.parametrize("first", [True, False], ids=["started before the fork", "started in the child"])
def test_forks(run, first):
    *before, child, parent = run(FORKED.replace("{first}", str(first)))
    for told in (*before, parent):
        assert not told["said"] and not told["fell"], told
    if first:
        assert child["fell"] and len(child["said"]) == 1, child
        assert "forked from one that used it; start processes with multiprocessing's" in child["said"][0]
    else:
        assert not child["said"] and not child["fell"], child


OWN = """
sys.path.insert(0, {examples!r})
import models

plugin = flambeau.__path__[0] + "/_plugins/libflambeau_opencl_{half}.so"
halves = flambeau._native.Plugin(*(plugin.format(half=half) for half in ("compile", "launch")))
said = json.loads(halves.describe())
assert said["compile"]["memory"] == said["launch"]["memory"] == 2, said

def changes(a, b):
    a[1:].mul_(2)
    c = torch.sort(a + b)[0]
    return c.t() @ b[:, 3:], c[2:], a[0], torch.softmax(c, -1)

compiled, b = flambeau.compile(changes, backend="opencl"), torch.randn(50, 60)
for _ in range(2):
    args = [[b.sin(), b[-50:]] for _ in range(2)]
    torch.testing.assert_close(compiled(*args[0]), changes(*args[1]))
    torch.testing.assert_close(*args)
with torch.no_grad():
    fn, args = models.build("transformer_encoder", 1)
    torch.testing.assert_close(flambeau.compile(fn, backend="opencl")(*args), fn(*args))
"""


@pytest.mark.parametrize("program", ["tell()", "forked"])
def test_memory_of_its_own(run, program):
    """PoCL's device, used as one that has: what kernels take is copied there, and back."""
    own = OWN.replace("{examples!r}", repr(str(Path(models.__file__).parent)))
    if program == "tell()":
        (told,) = run(own + program, FLAMBEAU_OPENCL_MEMORY="own")
        assert not told["said"] and not told["fell"], told
        return
    before, child, parent = run(FORKED.replace("{first}", "True"), FLAMBEAU_OPENCL_MEMORY="own")
    assert not before["fell"] and not parent["fell"] and child["fell"]
    assert "forked from one that used it" in child["said"][0]


def refused(told, sentence):
    """Right results, which the program checked, and one warning."""
    assert told["fell"] and len(told["said"]) == 1 and sentence in told["said"][0], told
    assert "\n" not in told["said"][0]


def test_a_machine_without_a_driver(run, place):
    (place / "none").mkdir()
    (told,) = run("tell()", OCL_ICD_VENDORS=f"{place / 'none'}/")
    refused(told, "is not available: there is no OpenCL driver; install one that runs on the CPU, like")
    # The daemon was started where there is none, and its workers find none either.
    (again,) = run("tell()")
    assert again["pid"] == told["pid"], again
    refused(again, "is not available: there is no OpenCL driver; install one")


def test_a_machine_without_opencl(run, place):
    (place / "libOpenCL.so.1").write_bytes(b"no library")
    (told,) = run("tell()", LD_LIBRARY_PATH=str(place))
    refused(told, "install its loader and a driver, like Debian's packages ocl-icd-libopencl1 and pocl-opencl-icd")


def test_a_driver_that_another_takes_the_place_of(run, place):
    """A target that the daemon's workers do not have, as after an upgrade of the driver."""
    (told,) = run("tell()")
    assert not told["fell"], told
    # PoCL's device under another name is another device.
    (again,) = run("tell()", number=2, POCL_DEVICES="basic")
    assert again["pid"] == told["pid"], again
    refused(again, "`flambeau stop` has it looked for again")


def test_the_library_is_looked_for_when_it_is_needed():
    folder = Path(flambeau.__file__).parent / "_plugins"
    for half in ("compile", "launch"):
        assert b"libOpenCL.so.1" in (folder / f"libflambeau_opencl_{half}.so").read_bytes()
        needed = subprocess.run(
            ["ldd", folder / f"libflambeau_opencl_{half}.so"], capture_output=True, text=True, check=True
        ).stdout
        assert "OpenCL" not in needed
