"""Mutated answers: a client refuses them, or runs what passes its verifier; it never crashes or panics."""

from __future__ import annotations

import os
import struct
import sys
from collections import Counter
from pathlib import Path
from random import Random

import flambeau
from flambeau import _native
from flambeau._native import _testing

from . import models, mutate
from .session import PREFIX, Message

#: Answers that one process takes: one that dies ends few.
BATCH = 2000


def answers(sessions: dict[str, list[Message]], count: int, seed: int) -> Counter[str]:
    """Lets processes take so many mutated answers."""
    said = Counter[str]()
    names = list(sessions)
    for start in range(0, count, BATCH):
        name = names[start // BATCH % len(names)]
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            code = 1
            try:
                _batch(name, sessions[name], min(BATCH, count - start), seed + start, writer)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            lines = pipe.read().splitlines()
        _, status = os.waitpid(child, 0)
        said.update(lines)
        if status:
            said["crash"] += 1
            print(f"a client that took answers of {name} ended with {status} after {len(lines)}", file=sys.stderr)
    return said


def _batch(name: str, session: list[Message], count: int, seed: int, writer: int) -> None:
    random = Random(seed)
    fn, args = models.build(name)
    function = type(fn).__call__ if isinstance(fn, models.nn.Module) else fn
    bound = (fn, *args) if isinstance(fn, models.nn.Module) else args
    folders = [str(Path(folder)) for folder in set(map(str, _native.plugins().values()))]
    bodies = [body for kind, body in session if kind == "answer"]
    frames = [body for body in bodies if body[0] in (2, 4)] or bodies
    for _ in range(count):
        body = random.choice(frames if random.random() < 0.9 else bodies)
        changed = mutate.any_of(random, body)
        if random.random() < 0.5:
            message = _testing.seal(changed)
        else:
            message = struct.pack("<I", len(changed)) + _testing.seal(body)[4:PREFIX] + changed
        came = _testing.take(message, function, bound, folders)
        if came.startswith("panic"):
            print(came, file=sys.stderr)
        os.write(writer, (came.split(":")[0] + "\n").encode())


assert flambeau
