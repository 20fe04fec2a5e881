"""`python -m tests.conformance SUITE ...`: runs one suite; `SUITE --help` lists its arguments."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path

SUITES = sorted(f.parent.name for f in Path(__file__).parent.glob("*/suite.py"))


def main() -> int:
    """Runs the suite that the command line names; 1 if something is worse than its table says."""
    if len(sys.argv) < 2 or sys.argv[1] not in SUITES:
        print(f"usage: python -m tests.conformance {{{','.join(SUITES)}}} ...\n\n{__doc__}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the run's daemon is stopped
    suite = importlib.import_module(f"tests.conformance.{sys.argv[1]}.suite")
    return int(suite.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
