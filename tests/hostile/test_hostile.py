"""A slice of the hostile runs: two minutes at most. At size: `python -m tests.hostile --help`."""

import os
import tempfile
from pathlib import Path

import pytest

from . import answers, cache, kills, models, requests, users
from .session import Daemon, record, run_models


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """A recorded session of each of two models."""
    folder = tmp_path_factory.mktemp("sessions")
    return {m.__name__: record(folder / m.__name__, m.__name__) for m in (models.perceptron, models.broken)}


@pytest.fixture
def place():
    """A folder with a path that is short enough for that of a socket below it."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        made = Path(folder) / "place"
        made.mkdir(mode=0o700)
        yield made


def test_requests(sessions, place):
    daemon = Daemon(place)
    try:
        said = requests.requests(daemon, list(sessions.values()), 600, seed=1)
        requests.connections(daemon, list(sessions.values()), 200, seed=1)
    finally:
        daemon.kill()
    assert said["sealed"] > 100 and said["changed"] > 100
    run_models(place, sessions)


def test_answers(sessions):
    said = answers.answers(sessions, 4000, seed=1)
    assert not said["crash"] and not said["panic"], said
    assert said["changed"] > 1000 and said["malformed"] + said["refused"] > 500, said


def test_damaged_caches(sessions, place):
    said = cache.damaged(place, list(sessions.values()), 500, seed=1)
    assert said["whole"] and said["missed"], said


def test_kills(sessions, place):
    said = kills.kills(place, list(sessions.values()), 12, seed=1)
    assert said["kept"] and not said["lost"], said


def test_kills_under_clients(place):
    said = kills.under_clients(place, 12, seed=1)
    assert said["programs"] > 20 and not said["wrong"], said
    assert said["kills of daemons"] and said["kills of workers"], said


of_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")


@of_root
def test_another_user_cannot_connect(sessions, place):
    (place / "socket").mkdir(mode=0o700)
    closed, opened, own = users.connects(place / "socket", next(iter(sessions.values())))
    assert (closed, opened, own) == ("PermissionError", "closed", "answered")


@of_root
def test_another_user_is_not_connected_to(place):
    assert users.impostor(place) == (False, True)


@of_root
def test_what_another_user_planted_is_left_alone(sessions, place):
    assert not users.planted(place, next(iter(sessions.values())))
