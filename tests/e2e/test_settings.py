"""Settings are checked in one way, whether they come from the environment or by assignment."""

import os
import subprocess
import sys

import pytest

import flambeau

pytestmark = pytest.mark.plain_only("settings do not depend on how things are compiled")

ODD = {
    "timeout": ["nan", "inf", "-1", "0", "1e300", "x"],
    "idle_timeout": ["nan", "-1", "0", "1e10"],
    "recompile_limit": ["0", "-3", "99999999999999999999999", "1.5"],
    "accumulated_recompile_limit": ["0", "-1", "9" * 400],
    "cache_size": ["0", "-1", "9" * 30, "10X"],
}


def imports(**variables):
    """What an import of the package says under these variables: exit code and the last line."""
    env = {**os.environ, **{f"FLAMBEAU_{name.upper()}": text for name, text in variables.items()}}
    done = subprocess.run(
        [sys.executable, "-c", "import flambeau"], env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize("name", ODD)
def test_odd_values_are_refused_in_a_sentence(name):
    for text in ODD[name]:
        code, said = imports(**{name: text})
        assert code == 1 and said.startswith(f"ValueError: FLAMBEAU_{name.upper()} must be "), (text, said)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", float("nan")),
        ("timeout", float("inf")),
        ("timeout", -1),
        ("timeout", 0),
        ("timeout", True),
        ("recompile_limit", 2**80),
        ("recompile_limit", True),
        ("accumulated_recompile_limit", 0),
        ("cache_size", 2**70),
        ("idle_timeout", 1e300),
    ],
)
def test_assignment_refuses_the_same(name, value):
    before = getattr(flambeau.config, name)
    with pytest.raises(ValueError, match=rf"^flambeau\.config\.{name} must be "):
        setattr(flambeau.config, name, value)
    assert getattr(flambeau.config, name) == before


def test_usual_values_pass():
    assert imports(timeout="2.5", idle_timeout="60", recompile_limit="16", cache_size="512M") == (0, "")
