"""The environment of the programs: `.venv-packages` has the packages of `requirements.txt`, and borrows torch and
all else from `.venv`, so that what is tested is the torch of all other tests. Installed again when the list changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".venv-packages"
PYTHON = FOLDER / "bin" / "python"
REQUIREMENTS = Path(__file__).parent / "requirements.txt"


def set_up() -> None:
    """Makes it, unless it is there with what the list says."""
    lender = ROOT / ".venv"
    wanted, stamp = REQUIREMENTS.read_text(), FOLDER / "flambeau-requirements.txt"
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    print("==> packages of the conformance programs (a few minutes)", file=sys.stderr)
    if not PYTHON.exists():
        subprocess.run([lender / "bin/python", "-m", "venv", "--without-pip", FOLDER], check=True)
    own = next(FOLDER.glob("lib/python3.*/site-packages"))
    borrowed = lender / own.relative_to(FOLDER)
    (own / "borrowed.pth").write_text(f"{borrowed}\n")
    # The list is complete and each version is pinned: pip has nothing to resolve, and cannot replace what is borrowed.
    pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "-q", "--no-deps"]
    subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
    stamp.write_text(wanted)
