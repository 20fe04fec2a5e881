"""Says so where this installation has no extension for the running Python; imported before what needs the extension."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("flambeau._native") is None:
    _there = sorted(file.name.split(".")[1] for file in Path(__file__).parent.glob("_native.*.so"))
    raise ImportError(
        f"this installation of flambeau has no extension for {platform.python_implementation()} "
        f"{sys.version_info.major}.{sys.version_info.minor}; it has: {', '.join(_there) or 'none'}"
    )
