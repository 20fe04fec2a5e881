"""The hostile runs at size, with figures: `python -m tests.hostile --requests 100000 --answers 100000 ...`."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from . import answers, cache, kills, models, requests, session
from .session import Daemon, record


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    for what in ("requests", "answers", "files", "connections", "kills"):
        parser.add_argument(f"--{what}", type=int, default=0, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        place = Path(folder)
        sessions = {m.__name__: record(place / m.__name__, m.__name__) for m in models.ALL}
        every = list(sessions.values())
        messages = sum(map(len, every))
        print(f"recorded {len(every)} sessions of {messages} messages", flush=True)

        def told(what: str, run) -> None:
            begun = time.monotonic()
            said = run()
            print(f"{what}: {dict(said)} in {time.monotonic() - begun:.0f} s", flush=True)

        if asked.requests or asked.connections:
            (place / "requests").mkdir(mode=0o700)
            daemon = Daemon(place / "requests")
            try:
                told("requests", lambda: requests.requests(daemon, every, asked.requests, asked.seed))
                told("connections", lambda: requests.connections(daemon, every, asked.connections, asked.seed))
                print(f"memory of the daemon: {daemon.memory() >> 20} MiB", flush=True)
            finally:
                daemon.kill()
            told("models on that cache", lambda: session.run_models(place / "requests"))
        if asked.answers:
            told("answers", lambda: answers.answers(sessions, asked.answers, asked.seed))
        if asked.files:
            told("files", lambda: cache.damaged(place / "files", every, asked.files, asked.seed))
        if asked.kills:
            told("kills", lambda: kills.kills(place / "kills", every, asked.kills, asked.seed))
            told("under clients", lambda: kills.under_clients(place / "clients", asked.kills, asked.seed))


if __name__ == "__main__":
    main()
