"""Mutated requests and raw connections: the daemon goes on, within its memory, for everybody else."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter
from random import Random

from flambeau._native import _testing

from . import mutate
from .session import PREFIX, Daemon, Message, moved, receive, replay, send

#: The first byte of a greeting.
WELCOME = 0
#: What the daemon may hold, whoever connects. Unit: bytes.
MEMORY = 1 << 30


def requests(daemon: Daemon, sessions: list[list[Message]], count: int, seed: int) -> Counter[str]:
    """Sends so many mutated requests, half of them with the hash of what they became. Sound ones are answered."""
    random, said = Random(seed), Counter[str]()
    sessions = [moved(session, daemon.cache) for session in sessions]
    for number in range(count):
        session = random.choice(sessions)
        if random.random() < 0.1:
            said[disordered(daemon, session, random)] += 1
            continue
        places = [at for at, (kind, _) in enumerate(session) if kind == "request"]
        at = random.choice(places)
        body = mutate.any_of(random, session[at][1])
        with contextlib.suppress(OSError), contextlib.closing(daemon.connect(timeout=10)) as raw:
            # The way to where the mutated request stands.
            if at > places[0]:
                send(raw, session[places[0]][1])
                receive(raw)
            if random.random() < 0.5:
                raw.sendall(_testing.seal(body))
                said["sealed"] += 1
            else:
                sound = _testing.seal(session[at][1])
                raw.sendall(struct.pack("<I", len(body)) + sound[4:PREFIX] + body)
                said["changed"] += 1
            raw.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                said["answered" if receive(raw) else "closed"] += 1
        if number % 500 == 499:
            check(daemon, session)
    check(daemon, sessions[0])
    return said


def disordered(daemon: Daemon, session: list[Message], random: Random) -> str:
    """Sends the requests of a session with some left out, sent again, or in another order; each is sound by itself."""
    first, *bodies = [body for kind, body in session if kind == "request"]
    how = random.choice(["left out", "sent again", "reordered", "greeting later"])
    if how == "left out":
        bodies = [body for body in bodies if random.random() < 0.5]
    elif how == "sent again":
        bodies = [body for body in bodies for _ in range(random.randrange(1, 4))]
    else:
        random.shuffle(bodies)
    at = random.randrange(len(bodies) + 1) if how == "greeting later" else 0
    bodies.insert(at, first)
    with contextlib.suppress(OSError), contextlib.closing(daemon.connect(timeout=10)) as raw:
        raw.settimeout(0.05)
        for body in bodies:
            send(raw, body)
        with contextlib.suppress(TimeoutError):
            while receive(raw):
                pass
    return how


def check(daemon: Daemon, session: list[Message]) -> None:
    """The daemon lives, answers a whole sound session, and holds no more than it may."""
    assert daemon.lives(), f"the daemon ended with {daemon.process.returncode}"
    with contextlib.closing(daemon.connect(timeout=60)) as raw:
        answers = replay(raw, session[:2])
        assert answers and answers[0][PREFIX] == WELCOME, "a sound client is not welcome"
        lookup = next(body for kind, body in session[2:] if kind == "request")
        send(raw, lookup)
        assert receive(raw), "a sound client got no answer"
    assert daemon.memory() < MEMORY, f"{daemon.memory() >> 20} MiB"


def connections(daemon: Daemon, sessions: list[list[Message]], count: int, seed: int) -> Counter[str]:
    """So many connections that say nothing, half a message, noise, or more than they read."""
    random, said = Random(seed), Counter[str]()
    sessions = [moved(session, daemon.cache) for session in sessions]
    kept: list[socket.socket] = []
    hello = sessions[0][0][1]
    for _ in range(count):
        kind = random.choice(["silent", "half", "noise", "huge", "unread", "gone"])
        said[kind] += 1
        try:
            raw = daemon.connect(timeout=5)
        except OSError:
            said["refused"] += 1
            continue
        with contextlib.suppress(OSError):
            if kind == "half":
                message = _testing.seal(hello)
                raw.sendall(message[: random.randrange(1, len(message))])
            elif kind == "noise":
                raw.sendall(random.randbytes(random.randrange(1, 4096)))
            elif kind == "huge":
                send(raw, hello)
                raw.sendall(struct.pack("<I", 1 << 29) + bytes(32) + bytes(1 << 16))
            elif kind == "unread":
                send(raw, hello)
                lookups = [body for way, body in sessions[0] if way == "request"][1:2]
                raw.settimeout(0.01)
                for body in lookups * 50:
                    send(raw, body)
        if kind == "gone":
            raw.close()
        else:
            kept.append(raw)
        if len(kept) > 200:
            kept.pop(0).close()
    for raw in kept:
        raw.close()
    check(daemon, sessions[0])
    return said
