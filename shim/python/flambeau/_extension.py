"""Makes `flambeau._native` what it is here: the extension for the running Python, or plain Python in its place.
Imported before what needs it."""

from __future__ import annotations

import platform
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, metadata
from importlib.util import find_spec
from pathlib import Path

import flambeau

MODE = "full"
"""Whether calls are compiled, or ("wrapper-only") run as plain Python."""


def _missing() -> str:
    """That there is no extension for the running Python, and for which there is one."""
    threads = " without GIL" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    here = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}{threads}"
    there = sorted(file.name.split(".")[1] for file in Path(__file__).parent.glob("_native.*.so"))
    has = f"it has: {', '.join(there)}" if there else f"wheels with one are for Linux and CPython {_wheels()}"
    return f"this installation has no extension for {here}; {has}"


def _wheels() -> str:
    """Versions of Python that there are wheels with an extension for; those without name them too."""
    try:
        topics = metadata("flambeau").get_all("Classifier") or []
    except PackageNotFoundError:
        return "(unknown)"
    front = "Programming Language :: Python :: 3."
    return ", ".join(topic.rpartition(" ")[2] for topic in topics if topic.startswith(front))


try:
    from flambeau import _native as _native
except ImportError as error:
    from flambeau import _plain

    broken = find_spec("flambeau._native") is not None
    _plain.WHY = f"its extension cannot be loaded: {error}" if broken else _missing()
    sys.modules["flambeau._native"] = flambeau._native = _plain
    MODE = "wrapper-only"
