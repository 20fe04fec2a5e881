"""`python -m tests.conformance.packages`: the suite on its own."""

import sys

from .suite import main

sys.exit(main(sys.argv[1:]))
