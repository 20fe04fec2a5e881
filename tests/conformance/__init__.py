"""Other people's programs as tests: suites that run compiled what passes eagerly, and compare with a checked-in table."""
