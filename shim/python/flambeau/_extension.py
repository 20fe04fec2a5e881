"""Makes `flambeau._native` what it is here: the extension for the running Python, or plain Python in its place.
Imported before what needs it."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import flambeau

MODE = "full"
"""Whether calls are compiled, or ("wrapper-only") run as plain Python."""

try:
    from flambeau import _native as _native
except ImportError as error:
    from flambeau import _plain

    if find_spec("flambeau._native") is None:
        there = sorted(file.name.split(".")[1] for file in Path(__file__).parent.glob("_native.*.so"))
        _plain.WHY = (
            f"this installation has no extension for {platform.python_implementation()} "
            f"{sys.version_info.major}.{sys.version_info.minor}; it has: {', '.join(there) or 'none'}"
        )
    else:
        _plain.WHY = f"its extension cannot be loaded: {error}"
    sys.modules["flambeau._native"] = flambeau._native = _plain
    MODE = "wrapper-only"
