"""Another user of the machine: cannot connect, is not connected to, and what it plants is left alone."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from .session import DAEMON, Daemon, Message, environment, moved, receive, send

#: Users that nobody is.
SPARE = 61_184, 61_185


def as_user(uid: int, run: Callable[[], object]) -> str:
    """Runs it in a child of that user; what it returns, or the name of what it raises."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            said = str(run())
        except BaseException as error:
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def connects(place: Path, session: list[Message]) -> tuple[str, str, str]:
    """What another user gets that connects: where the folder is closed, where it is open, and the owner meanwhile."""
    daemon = Daemon(place, place.parent / "elsewhere")
    hello = moved(session, daemon.cache)[0][1]

    def greeted() -> str:
        with contextlib.closing(daemon.connect(timeout=10)) as raw:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                send(raw, hello)
                return "answered" if receive(raw) else "closed"
            return "closed"

    try:
        closed = as_user(SPARE[0], greeted)
        for folder in (place, *place.parents):
            folder.chmod(folder.stat().st_mode | 0o055)
            if folder == Path(tempfile.gettempdir()):
                break
        daemon.socket.chmod(0o777)
        opened = as_user(SPARE[1], greeted)
        return closed, opened, greeted()
    finally:
        daemon.kill()


def impostor(place: Path) -> tuple[bool, bool]:
    """A socket of another user's where the daemon's belongs: whether it was reached, and one works elsewhere."""
    env = environment(place)

    def told(command: str, runs: bool = True) -> str:
        asked = [DAEMON, command, *(["--json"] if command == "start" else [])]
        return subprocess.run(asked, env=env, capture_output=True, text=True, timeout=60, check=runs).stdout

    path = Path(json.loads(told("start"))["socket"])
    told("stop")
    assert place in path.parents, f"{path}: the folder that is given away must be the test's own"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0.2)
        path.chmod(0o777)
        for what in (path, path.parent):
            os.chown(what, SPARE[0], SPARE[0])
        told("status", runs=False)
        elsewhere = Path(json.loads(told("start"))["socket"])
        told("status")
        told("stop")
        try:
            listener.accept()
            reached = True
        except TimeoutError:
            reached = False
    return reached, elsewhere.parent != path.parent and elsewhere.parent.stat().st_uid == os.getuid()


def planted(place: Path, session: list[Message]) -> list[str]:
    """What became of a file of ours that another user's folders, links and files point at, one after the other."""
    cache, target = place / "cache", place / "target"
    daemon = Daemon(place)
    assert _is_answered(daemon, session)
    daemon.stop()
    build = next(entry for entry in cache.iterdir() if entry.is_dir())
    names = [entry.name for entry in build.iterdir()] + ["flambeaud.log"]
    changed = []
    for name in [".", *names]:
        for whose in ("folder", "link", "file"):
            entry = build / name if name != "." else build
            _replace(entry, whose, target)
            daemon = Daemon(place)
            if not _is_answered(daemon, session):
                changed.append(f"{whose} for {name}: no answer")
            daemon.stop()
            if target.read_text() != "mine" or target.stat().st_uid != os.getuid():
                changed.append(f"{whose} for {name}: the target")
            if any(target.with_name("theirs").iterdir()):
                changed.append(f"{whose} for {name}: written to a folder of another user")
            subprocess.run(["rm", "-rf", cache, target.with_name("theirs")], check=True)
    return changed


def _is_answered(daemon: Daemon, session: list[Message]) -> bool:
    """Greets and looks up, which is answered once the cache is open."""
    requests = [body for kind, body in moved(session, daemon.cache) if kind == "request"][:2]
    with contextlib.closing(daemon.connect()) as raw:
        for body in requests:
            send(raw, body)
            if receive(raw) is None:
                return False
    return True


def _replace(entry: Path, whose: str, target: Path) -> None:
    theirs = target.with_name("theirs")
    for folder in (theirs, entry.parent.parent, entry.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    target.write_text("mine")
    subprocess.run(["rm", "-rf", entry], check=True)
    if whose == "folder":
        entry.mkdir()
        (entry / "flambeaud.log").symlink_to(target)
        os.chown(entry, *SPARE)
        os.lchown(entry / "flambeaud.log", *SPARE)
    elif whose == "link":
        entry.symlink_to(target if entry.name.endswith(("log", "lock", "generation")) else theirs)
        os.lchown(entry, *SPARE)
    else:
        entry.write_bytes(b"theirs")
        os.chown(entry, *SPARE)
