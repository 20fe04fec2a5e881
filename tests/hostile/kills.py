"""Kills: what was answered 250 ms before the daemon was killed is there after a start; nothing is left behind; programs
give what they give eagerly, whenever daemons and workers are killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from flambeau._native import _testing

from .cache import _converse
from .session import DAEMON, ROOT, Daemon, Message, environment, receive, send

#: What an answer promises, in seconds.
STORED_WITHIN = 0.25
CLIENTS = 4
#: Time in which clients start another daemon, in seconds.
LONGEST = 30


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
            # Before: a daemon whose thread waits for the disk ends only when that is over.
            ended = time.monotonic()
            daemon.kill()
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
            if old and not there:
                print(f"lost after {1000 * (ended - at):.0f} ms, kill {said['kills']}", file=sys.stderr)


def under_clients(place: Path, count: int, seed: int) -> Counter[str]:
    """Kills the daemon of four processes that compile, or one of its workers, so often."""
    random, said = Random(seed), Counter[str]()
    place.mkdir(mode=0o700, exist_ok=True)
    settings = environment(place)
    script = [sys.executable, "-m", "tests.hostile.models", "load"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    clients = [subprocess.Popen(script, env=settings, cwd=ROOT, **pipes) for _ in range(CLIENTS)]
    try:
        for client in clients:
            client.stdout.readline()
        for _ in range(count):
            time.sleep(random.uniform(0.02, 0.6))
            said[_kill(settings, random)] += 1
    finally:
        for client in clients:
            client.stdin.close()
        reports = [client.stdout.read() for client in clients]
        subprocess.run([DAEMON, "stop"], env=settings, capture_output=True, check=False)
    for client, report in zip(clients, reports, strict=True):
        assert client.wait(60) == 0, f"a client ended with {client.returncode}"
        seen = json.loads(report)
        said.update({"programs": seen["programs"], "wrong": seen["wrong"], "raised": len(seen["raised"])})
        said.update({f"eager: {cause}": times for cause, times in seen["eager"].items()})
        assert not seen["raised"], seen["raised"][0]
    return said


def _kill(settings: dict[str, str], random: Random) -> str:
    """Kills a worker where there is one, every other time; else the daemon. Waits until there is one."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        status = subprocess.run([DAEMON, "status", "--json"], env=settings, capture_output=True, text=True, check=True)
        daemon = json.loads(status.stdout).get("pid")
        with contextlib.suppress(OSError):
            if daemon:
                threads = Path(f"/proc/{daemon}/task").iterdir()
                workers = [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
                if workers and random.random() < 0.5:
                    os.kill(random.choice(workers), signal.SIGKILL)
                    return "kills of workers"
                os.kill(daemon, signal.SIGKILL)
                return "kills of daemons"
        time.sleep(0.01)
    raise AssertionError("clients start no daemon")
