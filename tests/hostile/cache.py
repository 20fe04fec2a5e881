"""Damaged caches: a frame that comes out is the one that went in; nothing waits, nothing ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from random import Random

from flambeau._native import _testing

from . import mutate
from .session import Daemon, Message, moved, receive, send

#: Entries damaged before each start.
EACH = 25
#: Longest time from a start to the last answer, in seconds.
LONGEST = 20


def flip(random: Random, path: Path) -> None:
    """Changes bytes in place."""
    data = path.read_bytes()
    path.write_bytes(mutate.any_of(random, data))


def empty(_: Random, path: Path) -> None:
    """Leaves nothing in it."""
    path.write_bytes(b"")


def gone(_: Random, path: Path) -> None:
    """Removes it."""
    path.unlink()


def fifo(_: Random, path: Path) -> None:
    """A FIFO in its place."""
    path.unlink()
    os.mkfifo(path)


def folder(_: Random, path: Path) -> None:
    """A folder in its place."""
    path.unlink()
    path.mkdir()


def link(random: Random, path: Path) -> None:
    """A link to itself, to nothing, or to a file of the same content."""
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    path.symlink_to(random.choice([aside, path.with_name("nothing"), path, Path("/dev/zero")]))


def hard_link(_: Random, path: Path) -> None:
    """A second name."""
    with contextlib.suppress(FileExistsError):
        os.link(path, path.with_name(path.name + ".other"))


def open_to_others(_: Random, path: Path) -> None:
    """Anybody may write to it."""
    path.chmod(0o666)


def of_another(_: Random, path: Path) -> None:
    """Of another user, where this one may give files away."""
    with contextlib.suppress(PermissionError):
        os.chown(path, 65534, 65534)


def sparse(_: Random, path: Path) -> None:
    """Larger than any memory."""
    os.truncate(path, 1 << 40)


KINDS = [flip, flip, flip, empty, gone, fifo, folder, link, hard_link, open_to_others, of_another, sparse]


def damaged(place: Path, sessions: list[list[Message]], count: int, seed: int) -> Counter[str]:
    """Damages so many entries of copies of a filled cache, some before each start of a daemon."""
    random, said = Random(seed), Counter[str]()
    pristine = place / "pristine"
    place.mkdir(mode=0o700, exist_ok=True)
    (place / "cache").mkdir(mode=0o700, exist_ok=True)
    lookups = _fill(place, sessions)
    shutil.copytree(place / "cache", pristine)
    sound = _ask(place, lookups)
    assert all(sound), "a filled cache gives nothing"
    hurt = 0
    while hurt < count:
        shutil.rmtree(place / "cache")
        shutil.copytree(pristine, place / "cache")
        files = sorted(p for p in (place / "cache").rglob("*") if p.is_file())
        few = random.choice([1, 2, EACH])
        for path in random.sample(files, min(few, len(files))):
            kind = random.choice(KINDS)
            kind(random, path)
            said[kind.__name__] += 1
            hurt += 1
        begun = time.monotonic()
        found = _ask(place, lookups)
        assert time.monotonic() - begun < LONGEST, "a damaged cache keeps clients waiting"
        for hashes, expected in zip(found, sound, strict=True):
            assert set(hashes) <= set(expected), "a frame that nobody stored"
            said["whole" if hashes == expected else "missed"] += 1
    return said


def _fill(place: Path, sessions: list[list[Message]]) -> list[tuple[bytes, bytes]]:
    """Compiles the recorded sessions; gives the greeting and each look-up."""
    lookups = []
    daemon = Daemon(place)
    try:
        for session in sessions:
            hello = moved(session, place / "cache")[0][1]
            for at, (kind, body) in enumerate(session):
                if kind != "request" or _testing.kind_of_request(body) != "compile":
                    continue
                with contextlib.closing(daemon.connect()) as raw:
                    send(raw, hello)
                    receive(raw)
                    send(raw, body)
                    if _converse(raw, session[at + 1 :]):
                        lookups.append((hello, _testing.lookup_of(body)))
    finally:
        daemon.stop()
    return lookups


def _converse(raw, rest: list[Message]) -> bool:
    """Answers the daemon's questions as they were answered; whether a frame came of it."""
    replies = [body for kind, body in rest if kind == "request" and _testing.kind_of_request(body) == "answers"]
    while (message := receive(raw)) is not None:
        tag = message[36]
        if tag == 3:
            if not replies:
                return False
            send(raw, replies.pop(0))
        elif tag == 4:
            return True
        elif tag in (5, 6):
            return False
    return False


def _ask(place: Path, lookups: list[tuple[bytes, bytes]]) -> list[list[bytes]]:
    daemon = Daemon(place)
    found = []
    try:
        for hello, lookup in lookups:
            assert daemon.lives(), f"the daemon ended: {daemon.said()}"
            with contextlib.closing(daemon.connect(timeout=LONGEST)) as raw:
                message = None
                # A closed connection is no answer.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    send(raw, hello)
                    receive(raw)
                    send(raw, lookup)
                    message = receive(raw)
                found.append(_testing.frames_of(message) if message else [])
        assert daemon.lives(), f"the daemon ended: {daemon.said()}"
    finally:
        daemon.kill()
    return found
