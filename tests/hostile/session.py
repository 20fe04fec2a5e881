"""Daemons under test, raw connections to them, and recordings of real sessions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import flambeau
from flambeau._native import _testing

from . import models

ROOT = Path(__file__).parents[2]
DAEMON = Path(flambeau.__file__).parent / "_bin" / "flambeaud"
#: Length and hash of a body.
PREFIX = 36

Message = tuple[str, bytes]


class Daemon:
    """A daemon in the foreground with a socket and a cache of its own."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.folder, self.cache = folder, cache or folder / "cache"
        self.socket = folder / "real.sock"
        self.log = (folder / "daemon.log").open("ab")
        self.start()

    def start(self) -> None:
        """Starts it; returns once it listens."""
        arguments = ["serve", "--socket", self.socket, "--cache-dir", self.cache, "--idle-timeout", "0"]
        self.process = subprocess.Popen([DAEMON, *arguments], stdout=subprocess.DEVNULL, stderr=self.log)
        for _ in range(2000):
            with contextlib.suppress(OSError), contextlib.closing(self.connect()) as raw:
                # A child of one that was killed may hold its socket open for a moment.
                pid, _, _ = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if pid == self.process.pid:
                    return
            assert self.lives(), f"the daemon ended at its start: {self.said()}"
            time.sleep(0.005)
        raise AssertionError("the daemon does not listen")

    def connect(self, timeout: float = 30) -> socket.socket:
        """A raw connection."""
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(timeout)
        raw.connect(str(self.socket))
        return raw

    def lives(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def said(self) -> str:
        """How it ended, if it did, and the end of its log."""
        log = (self.folder / "daemon.log").read_text(errors="replace")
        return f"status {self.process.poll()}\n{log[-2000:]}"

    def memory(self) -> int:
        """Its resident memory, in bytes."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """Ends it as no daemon expects."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends it in order."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()


def send(raw: socket.socket, body: bytes) -> None:
    """Sends a body with the right prefix."""
    raw.sendall(_testing.seal(body))


def receive(raw: socket.socket) -> bytes | None:
    """The next message with its prefix; `None` where the connection ends."""

    def exactly(count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                part = raw.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    prefix = exactly(PREFIX)
    if prefix is None:
        return None
    body = exactly(struct.unpack("<I", prefix[:4])[0])
    return None if body is None else prefix + body


@contextlib.contextmanager
def proxy(path: Path, target: Path, seen: list[Message]) -> Iterator[None]:
    """Listens at `path`, passes everything on to `target` and back, and notes it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()

    def pump(source: socket.socket, sink: socket.socket, kind: str) -> None:
        while (message := receive(source)) is not None:
            seen.append((kind, message[PREFIX:]))
            with contextlib.suppress(OSError):
                sink.sendall(message)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(target))
            for ends in ((client, server, "request"), (server, client, "answer")):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def environment(folder: Path) -> dict[str, str]:
    """For clients of a cache and a socket in `folder`."""
    settings = {"FLAMBEAU_CACHE_DIR": str(folder / "cache"), "XDG_RUNTIME_DIR": str(folder)}
    return {**os.environ, **settings, "PYTHONPATH": f"{Path(flambeau.__file__).parents[1]}:{ROOT}"}


def record(folder: Path, name: str) -> list[Message]:
    """What a client and a fresh daemon say to each other while a model is compiled, in order."""
    folder.mkdir(mode=0o700, exist_ok=True)
    env = environment(folder)
    started = subprocess.run([DAEMON, "start", "--json"], env=env, capture_output=True, text=True, check=True)
    subprocess.run([DAEMON, "stop"], env=env, capture_output=True, check=True)
    path = Path(json.loads(started.stdout)["socket"])
    seen: list[Message] = []
    daemon = Daemon(folder)
    try:
        with proxy(path, daemon.socket, seen):
            _run(env, [name])
    finally:
        daemon.stop()
    kinds = {_testing.kind_of_request(body) for kind, body in seen if kind == "request"}
    assert {"hello", "compile"} <= kinds, kinds
    return seen


def run_models(folder: Path, names: Iterable[str] = tuple(m.__name__ for m in models.ALL)) -> dict[str, int]:
    """Runs the models in a process that uses the cache in `folder`, with a daemon of its own: each gives what it gives
    eagerly."""
    env, names = environment(folder), list(names)
    try:
        _run(env, names)
    finally:
        subprocess.run([DAEMON, "stop"], env=env, capture_output=True, check=False)
    return {"right": len(names)}


def _run(env: dict[str, str], names: list[str]) -> None:
    script = [sys.executable, "-m", "tests.hostile.models", *names]
    done = subprocess.run(script, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def moved(session: list[Message], cache: Path) -> list[Message]:
    """The session with a greeting that names another cache folder: a daemon greets clients of its own only."""
    (kind, hello), *rest = session
    return [(kind, _testing.hello_for(hello, str(cache))), *rest]


def replay(raw: socket.socket, session: list[Message], most: int | None = None) -> list[bytes]:
    """Plays a session's requests again, in step with what the daemon answers; gives the answers."""
    answers = []
    for at, (kind, body) in enumerate(session[:most]):
        if kind == "request":
            send(raw, body)
        elif session[at - 1][0] == "request" or _is_awaited(body):
            message = receive(raw)
            if message is None:
                break
            answers.append(message)
    return answers


def _is_awaited(body: bytes) -> bool:
    # Progress comes when it comes (variant 7), logs and news of back ends as well.
    return body[0] not in (7, 8, 10)
