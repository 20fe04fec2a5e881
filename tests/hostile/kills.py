"""Kills: what was answered 250 ms before the daemon was killed is there after a start; nothing is left behind."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from flambeau._native import _testing

from .cache import _converse
from .session import Daemon, Message, receive, send

#: What an answer promises, in seconds.
STORED_WITHIN = 0.25
CLIENTS = 4


class Load:
    """Clients that compile one frame after the other, each under a key of its own."""

    def __init__(self, daemon: Daemon, sessions: list[list[Message]], hello: bytes) -> None:
        self.daemon, self.hello = daemon, hello
        self.compiles = [
            (body, session[at + 1 :])
            for session in sessions
            for at, (kind, body) in enumerate(session)
            if kind == "request" and _testing.kind_of_request(body) == "compile"
        ]
        self.next, self.lock, self.over = 0, threading.Lock(), threading.Event()
        self.answered: list[tuple[float, bytes]] = []
        self.threads = [threading.Thread(target=self.run) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self) -> None:
        """One client."""
        while not self.over.is_set():
            with self.lock:
                number, self.next = self.next, self.next + 1
            body, rest = self.compiles[number % len(self.compiles)]
            body = _testing.with_torch(body, f"kill-{number}")
            with contextlib.suppress(OSError), contextlib.closing(self.daemon.connect(timeout=10)) as raw:
                send(raw, self.hello)
                if receive(raw) is None:
                    continue
                send(raw, body)
                if _converse(raw, rest):
                    with self.lock:
                        self.answered.append((time.monotonic(), _testing.lookup_of(body)))
            time.sleep(0.002)

    def take(self) -> list[tuple[float, bytes]]:
        """What was answered since the last time."""
        with self.lock:
            taken, self.answered = self.answered, []
        return taken

    def end(self) -> None:
        """No more."""
        self.over.set()
        for thread in self.threads:
            thread.join()


def kills(place: Path, sessions: list[list[Message]], count: int, seed: int) -> Counter[str]:
    """Kills a daemon under load so often, and looks at what it kept."""
    random, said = Random(seed), Counter[str]()
    shutil.rmtree(place / "cache", ignore_errors=True)
    place.mkdir(mode=0o700, exist_ok=True)
    daemon = Daemon(place)
    hello = _testing.hello_for(sessions[0][0][1], str(place / "cache"))
    load = Load(daemon, sessions, hello)
    try:
        for _ in range(count):
            time.sleep(random.uniform(0.05, 0.9))
            daemon.kill()
            ended = time.monotonic()
            answered = load.take()
            daemon.start()
            _look(daemon, hello, [(at, lookup) for at, lookup in answered if at <= ended], ended, said)
            said["kills"] += 1
    finally:
        load.end()
        daemon.kill()
    daemon.start()
    left = [p.name for p in (place / "cache").rglob(".new-*")]
    daemon.stop()
    assert not left, left
    return said


def _look(daemon: Daemon, hello: bytes, answered: list[tuple[float, bytes]], ended: float, said: Counter[str]) -> None:
    with contextlib.closing(daemon.connect()) as raw:
        send(raw, hello)
        receive(raw)
        for at, lookup in answered:
            send(raw, lookup)
            message = receive(raw)
            there = bool(message and _testing.frames_of(message))
            old = ended - at > STORED_WITHIN
            said["kept" if there else "lost" if old else "young and lost"] += 1
