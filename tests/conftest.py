"""`--flambeau-mode`: the end-to-end tests in another mode; which tests a mode leaves out, and why. `--flambeau-slice`,
`--flambeau-slow`: some of the tests, or of those that take long, drawn.

wrap: what is compiled is wrapped in one more frame. leaf: a graph break before each return of an innermost function.
flat: nested graph breaks are off. warm: twice, the second time in other processes, which must trace nothing.
What a mode does to a test is in `e2e/mode.py`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zlib

import pytest
from conformance import slices

MODES = ("plain", "wrap", "leaf", "flat", "warm")
FOLDER = "FLAMBEAU_TEST_FOLDER"  # of a cache and a daemon that outlive one run, for the two of `warm`


def pytest_addoption(parser):
    parser.addoption("--flambeau-mode", choices=[*MODES, "again"], default="plain", help="how the tests run")
    parser.addoption("--flambeau-backends", default="eager,cpu", help="for tests that run on both: eager, cpu or both")
    parser.addoption(
        "--flambeau-slice", metavar="ID/N", help="one test in N, drawn by the ID; `commit/N`: by the commit's name"
    )
    parser.addoption("--flambeau-slow", metavar="ID/N", help="the same of tests marked `slow`; all others run")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.addinivalue_line("markers", "plain_only(why, modes): left out in these modes (all by default)")
    config.addinivalue_line("markers", "mode_bug(what, modes): must fail in these modes (all by default): an open bug")
    config.addinivalue_line("markers", "slow: takes long for what it is about, which few changes touch")
    config.addinivalue_line("markers", "provokes_internal(how): makes the compiler or a back end fail on purpose")
    config.addinivalue_line("markers", "passes_recompile_limit(why): what is beyond the limit is what it tests")
    # Read by `e2e/mode.py`, in this process and in workers.
    os.environ["FLAMBEAU_TEST_MODE"] = config.getoption("--flambeau-mode")
    os.environ["FLAMBEAU_TEST_BACKENDS"] = config.getoption("--flambeau-backends")


def pytest_collection_modifyitems(config, items):
    slice_of(config, items, "--flambeau-slice", lambda item: True)
    slice_of(config, items, "--flambeau-slow", lambda item: item.get_closest_marker("slow"))
    mode = config.getoption("--flambeau-mode")
    if mode == "plain":
        return
    for item in items:
        for mark in item.iter_markers("plain_only"):
            if mode in named(mark):
                item.add_marker(pytest.mark.skip(reason=f"plain only: {mark.args[0]}"))
        for mark in item.iter_markers("mode_bug"):
            if mode in named(mark):
                item.add_marker(pytest.mark.xfail(reason=f"open bug: {mark.args[0]}", strict=True))
        if "e2e" not in item.path.parts:
            item.add_marker(pytest.mark.skip(reason="plain only: modes are for end-to-end tests"))


def slice_of(config, items, option, among):
    """Leaves out what the slice does not draw. Each test is drawn by itself, so that a slice has some of each file."""
    drawn = config.getoption(option)
    if not drawn:
        return
    identity, _, of = drawn.partition("/")
    if not of.isdecimal() or int(of) < 1:
        raise pytest.UsageError(f"{option} {drawn}: an ID and a number are wanted, like commit/3")
    identity = slices.identity(identity)
    within = [not among(item) or zlib.crc32(f"{identity} {item.nodeid}".encode()) % int(of) == 0 for item in items]
    config.hook.pytest_deselected(items=[item for item, kept in zip(items, within, strict=True) if not kept])
    items[:] = [item for item, kept in zip(items, within, strict=True) if kept]


def pytest_report_header(config):
    drawn = config.getoption("--flambeau-slice") or config.getoption("--flambeau-slow")
    return drawn and f"slice {slices.identity(drawn.partition('/')[0])}/{drawn.partition('/')[2]}"


def named(mark):
    """The modes that a mark is about; "warm" is both runs."""
    modes = mark.args[1].split() if len(mark.args) > 1 else MODES
    return {*modes, "again"} if "warm" in modes else {*modes}


def pytest_cmdline_main(config):
    """`warm` is two runs over one cache."""
    if config.getoption("--flambeau-mode") != "warm" or FOLDER in os.environ:
        return None
    folder = tempfile.mkdtemp(prefix="flambeau-test-")
    environment = {**os.environ, FOLDER: folder, "FLAMBEAU_CACHE_DIR": f"{folder}/cache", "XDG_RUNTIME_DIR": folder}
    try:
        for mode in ("warm", "again"):
            arguments = [*config.invocation_params.args, "--flambeau-mode", mode]
            print(f"==> {'the cache is filled' if mode == 'warm' else 'new processes'}", flush=True)
            code = subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode
            if code:
                break
        stop = [sys.executable, "-m", "flambeau", "stop"]
        subprocess.run(stop, env=environment, capture_output=True, timeout=60, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return code
