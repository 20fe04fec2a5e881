"""Plug-ins whose files are damaged, or that fail, abort, hang or panic: a sentence each, and right results."""

import os
import re
import shutil
import signal
import warnings

import pytest
import torch
from support import daemon_pid, fresh_function

import flambeau
import plugins

pytestmark = pytest.mark.plain_only("plug-ins are chosen by folder, whatever the frames are")


def check(backend, folder, sentence, **settings):
    """A compiled call with this back end is right, says this once, and the daemon that served it lives on."""
    a = torch.randn(64)
    first, second = fresh_function(), fresh_function()
    with flambeau.config.patch(plugin_path=[str(folder)], **settings), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        flambeau.reset()
        pid = daemon_pid()
        for fn in (first, second):
            compiled = flambeau.compile(fn, backend=backend)
            for _ in range(2):
                assert torch.equal(compiled(a), fn(a))
        assert daemon_pid() == pid
        if "cache_dir" in settings:
            os.kill(pid, signal.SIGTERM)
    texts = [str(w.message) for w in said if issubclass(w.category, RuntimeWarning)]
    assert len(texts) == 1 and "\n" not in texts[0], texts
    assert re.search(sentence, texts[0]), texts[0]


@pytest.mark.provokes_internal("a damaged back end cannot be installed")
@pytest.mark.parametrize("which", plugins.HALVES)
@pytest.mark.parametrize("how", plugins.DAMAGES)
def test_damaged_files(tmp_path, how, which):
    plugins.install(tmp_path, "cpu", "cpu")
    plugins.spoil(plugins.half(tmp_path, "cpu", which), how)
    check("cpu", tmp_path, plugins.DAMAGES[how][1])


@pytest.mark.provokes_internal("a damaged back end cannot be installed")
@pytest.mark.parametrize("which", plugins.HALVES)
def test_files_that_cannot_be_read(tmp_path, which):
    plugins.install(tmp_path, "cpu", "cpu")
    file = plugins.half(tmp_path, "cpu", which)
    file.unlink()
    file.symlink_to("/proc/self/mem")
    check("cpu", tmp_path, r"cannot be read \(.*\); see who owns it")


@pytest.mark.provokes_internal("a damaged back end cannot be installed")
def test_a_missing_launch_half(tmp_path):
    plugins.install(tmp_path, "alone", "template", halves=["compile"])
    check("alone", tmp_path, r"no launch half of back end alone \(libflambeau_alone_launch\.so\) was found")


def test_halves_that_were_mixed_up(tmp_path):
    plugins.install(tmp_path, "cpu", "cpu")
    shutil.copy(plugins.half(tmp_path, "cpu", "launch"), plugins.half(tmp_path, "cpu", "compile"))
    check("cpu", tmp_path, "is the launch half of a back end, where its compile half belongs")


def test_a_library_that_is_no_plugin(tmp_path):
    plugins.install(tmp_path, "cpu", "cpu")
    with open("/proc/self/maps") as maps:
        libc = next(line.split()[-1] for line in maps if "/libc.so" in line or "/libc-" in line)
    shutil.copy(libc, plugins.half(tmp_path, "cpu", "compile"))
    check("cpu", tmp_path, "is a shared library but no flambeau plug-in")


def test_a_driver_that_is_missing(tmp_path):
    plugins.install(tmp_path, "absent", "faulty")
    check("absent", tmp_path, "is not available: there is no driver of this device; install one")


FAULTS = {
    "panic": "back end panic compiled nothing: the plug-in panicked: as asked; `flambeau plugin check`",
    "abort": r"kernel \w+ ended the code generator of back end abort twice \(ended by signal 6\); `flambeau",
    "refuse": r"back end refuse refused kernel \w+: as asked; `flambeau plugin check`",
    "hang": r"the code generator of back end hang gave no answer in 4 s and is not used any more; replace the plug-in",
    "hang_at_once": "the code generator of back end hang_at_once gave no answer in 4 s and is not used any more",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_code_generators_that_fail(tmp_path, fault):
    plugins.install(tmp_path, fault, "faulty")
    # A daemon of its own, whose patience with a kernel is half of this.
    check(fault, tmp_path, FAULTS[fault], timeout=8.0, cache_dir=str(tmp_path / "cache"))


@pytest.mark.provokes_internal("the back end panics")
def test_a_launch_that_panics(tmp_path):
    plugins.install(tmp_path, "launched", "faulty")
    check("launched", tmp_path, "back end launched: the plug-in panicked during a launch")
