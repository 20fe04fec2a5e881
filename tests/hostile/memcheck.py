"""Runs end-to-end tests under valgrind's memcheck: the extension's `unsafe` code and the machine code of kernels read
and write only what is theirs. Prints findings whose code is flambeau's, and fails if there are any.

Usage: python -m tests.hostile.memcheck [--timeout SECONDS] [FILE ...]   (about three minutes for an empty file)
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNTIME = sorted((ROOT / "tests/e2e").glob("test_runtime_*.py"))
#: What runs between two frames of the interpreter belongs to the lower one.
INTERPRETER = "_PyEval_EvalFrameDefault"
#: Functions that valgrind puts in the place of the C library's are the caller's.
C_LIBRARY = ("/vgpreload_", "/libc.so", "/libc-", "/ld-linux")


@dataclass
class Frame:
    """Where in the code: the file that was mapped, function, source line. Code of kernels is in no file."""

    object: str
    function: str
    line: str

    @property
    def own(self) -> bool:
        """Whether it is flambeau's."""
        return "/_native." in self.object or "/libflambeau_" in self.object or not self.object


@dataclass
class Finding:
    """What memcheck says, and where: the innermost frame first."""

    kind: str
    text: str
    frames: list[Frame]

    @property
    def own(self) -> bool:
        """Whether flambeau's code did it: itself, or, where memory was wrong, through a function of torch or Python."""
        frames = [frame for frame in self.frames if not any(part in frame.object for part in C_LIBRARY)]
        names = [frame.function for frame in frames]
        above = frames[: names.index(INTERPRETER)] if INTERPRETER in names else frames
        wrong_values = self.kind.startswith("Uninit") or self.kind == "SyscallParam"
        return any(frame.own for frame in (above[:1] if wrong_values else above))

    def __str__(self) -> str:
        places = [f"    {frame.function or '?'} ({frame.line or frame.object or 'no file'})" for frame in self.frames]
        return "\n".join([f"{self.kind}: {self.text}", *places[:12]])


def findings(path: Path) -> list[Finding]:
    """All that memcheck wrote."""
    found = []
    for error in ET.parse(path).getroot().iter("error"):
        if not (error.findtext("kind") or "").startswith("Leak_"):
            text = error.findtext("what") or error.findtext("xwhat/text") or ""
            frames = [
                Frame(
                    frame.findtext("obj") or "",
                    frame.findtext("fn") or "",
                    f"{frame.findtext('file')}:{frame.findtext('line')}" if frame.findtext("file") else "",
                )
                for frame in error.iterfind("stack[1]/frame")
            ]
            found.append(Finding(error.findtext("kind") or "", text, frames))
    return found


def check(files: list[Path], timeout: int) -> tuple[int, list[Finding]]:
    """Runs the tests; gives pytest's exit code and what memcheck found."""
    with tempfile.TemporaryDirectory(prefix="memcheck-") as folder:
        report = Path(folder) / "report.xml"
        command = ["valgrind", "--error-limit=no", "--num-callers=40", "--xml=yes", f"--xml-file={report}"]
        command += [f"--suppressions={Path(__file__).with_suffix('.supp')}"]
        command += [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)]
        settings = {"PYTHONMALLOC": "malloc", "OMP_NUM_THREADS": "1", "FLAMBEAU_TIMEOUT": "600"}
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, timeout=timeout, check=False)
        return done.returncode, findings(report)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="tests (the runtime's)")
    parser.add_argument("--timeout", type=int, default=7200, metavar="SECONDS")
    asked = parser.parse_args()
    if not shutil.which("valgrind"):
        parser.error("valgrind is not installed")
    code, found = check(asked.files or RUNTIME, asked.timeout)
    own = [finding for finding in found if finding.own]
    for finding in own:
        print(finding, end="\n\n")
    print(f"tests: exit code {code}; memcheck: {len(found)} findings, of flambeau's code {len(own)}")
    return 1 if code or own else 0


if __name__ == "__main__":
    sys.exit(main())
