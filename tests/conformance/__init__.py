"""Other people's programs as tests: suites that run compiled what passes eagerly; each has a checked-in table."""
