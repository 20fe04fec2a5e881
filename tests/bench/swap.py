"""Back ends are swapped under clients that call in a loop: between two, and to new builds of `cpu`. Prints what came of
it.

Each client compiles a net with the user's default and a function with `backend="cpu"`, and compares every call with
eager results. After each command the script waits until every client has moved; `--rush` does not wait. It fails if a
call failed, ran eagerly or gave another result, if going back compiled anything, or if memory grew.

Usage: swap.py [--clients 4] [--swaps 50] [--upgrades 10] [--second opencl] [--files FOLDER] [--rush] [--json]
"""

import argparse
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "shim/python/flambeau"
DAEMON = PACKAGE / "_bin/flambeaud"
FIRST = "cpu"
WARM_SWAPS = 4
"""Made before memory is measured: each back end has been used twice."""
PATIENCE = 60.0
"""Seconds for clients to move, first compiles with it."""
GROWTH = 24 << 20
"""Bytes that a process may grow by over all swaps and upgrades: libraries stay mapped (see docs/backends.md)."""


# A client.


def client() -> None:
    """Calls until standard input ends; prints a line of JSON for each line that comes."""
    import torch

    import flambeau

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)]
    net = torch.nn.Sequential(*layers, torch.nn.Softmax(-1)).eval()

    def fixed(x):
        return (x.sin() * 2 + x.mean(-1, keepdim=True)).relu()

    inputs = [torch.randn(rows, 8) for rows in (3, 5)]
    programs = [(flambeau.compile(net), net), (flambeau.compile(fixed, backend=FIRST), fixed)]
    seen = {"calls": 0, "wrong": 0, "raised": []}
    with torch.no_grad():
        expected = [[eager(x) for x in inputs] for _, eager in programs]
        while True:
            for (compiled, _), results in zip(programs, expected, strict=True):
                for x, right in zip(inputs, results, strict=True):
                    try:
                        got = compiled(x)
                        seen["wrong"] += not torch.allclose(got, right, rtol=1e-5, atol=1e-6)
                    except Exception as error:
                        seen["raised"].append(repr(error))
                    seen["calls"] += 1
            if select.select([sys.stdin], [], [], 0)[0]:
                if not sys.stdin.readline():
                    return
                used = [json.loads(flambeau._native.explain_data(native(compiled))) for compiled, _ in programs]
                bodies = [[frame["body"] for frame in one["frames"]] for one in used]
                report = {**seen, "plugins": [one["plugin"] for one in used], "bodies": bodies}
                print(json.dumps({**report, "counters": flambeau.counters(), **memory(os.getpid())}), flush=True)


def native(compiled):
    """What a module's view calls."""
    return getattr(compiled, "_flambeau_compiled", compiled)


def memory(pid: int) -> dict[str, int]:
    """Resident bytes of a process: in all, and without mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {
        line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.startswith("Rss") or "VmRSS" in line
    }
    return {"rss": found["VmRSS"], "anonymous": found["RssAnon"]}


# The script.


def build_of(source: Path, name: str, version: str, folder: Path) -> Path:
    """Another build of a plug-in: the same code under another version."""
    folder.mkdir(parents=True)
    for half in ("compile", "launch"):
        data = (source / f"libflambeau_{name}_{half}.so").read_bytes()
        if b"FLMBSEA1" in data[-40:]:
            data = data[:-40]
        assert b"0.1.0" in data
        to = folder / f"libflambeau_{name}_{half}.so"
        to.write_bytes(data.replace(b"0.1.0", version.encode()))
        subprocess.run([DAEMON, "seal", to], check=True)
    return folder


class Bench:
    """The folder of a run, its environment, and its clients."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = Path(tempfile.mkdtemp(prefix="flambeau-swap-"))
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_BACKEND", "FLAMBEAU_PLUGIN_PATH")},
            "PYTHONPATH": str(PACKAGE.parent),
            "XDG_RUNTIME_DIR": str(self.folder),
            "FLAMBEAU_CACHE_DIR": str(self.folder / "cache"),
            "FLAMBEAU_DATA_DIR": str(self.folder / "data"),
        }
        self.clients: list[subprocess.Popen[str]] = []
        self.moves: list[float] = []
        self.known: set[tuple[str, str]] = set()
        self.again = 0
        self.default = FIRST
        self.folders = dict.fromkeys([FIRST, options.second], str(PACKAGE / "_plugins"))

    def backend(self, *args: object) -> dict:
        """What `flambeau backend ARGS` did."""
        command = [str(DAEMON), "backend", *map(str, args), "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)

    def status(self) -> dict:
        """The daemon's."""
        command = [str(DAEMON), "status", "--json"]
        return json.loads(
            subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout
        )

    def start(self) -> None:
        """Starts the clients."""
        command = [sys.executable, __file__, "client"]
        for _ in range(self.options.clients):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.clients.append(subprocess.Popen(command, env=self.environment, **pipes))

    def reports(self) -> list[dict]:
        """What every client has to say now."""
        for one in self.clients:
            one.stdin.write("\n")
            one.stdin.flush()
        return [json.loads(one.stdout.readline()) for one in self.clients]

    def command(self, *args: object) -> None:
        """A command, and what clients are to use from then on: the folders of the default and of `cpu`."""
        done = self.backend(*args)
        if args[0] == "use":
            self.default = done["default"]
        else:
            self.folders[done["name"]] = str(self.folder / "data/backends" / done["name"] / done["build"])

    def settle(self) -> None:
        """Waits until every client runs what was chosen."""
        begun = time.perf_counter()
        wanted = [self.folders[self.default], self.folders[FIRST]]
        while not all(r["plugins"] == wanted and all(map(bool, r["bodies"])) for r in self.reports()):
            if time.perf_counter() > begun + PATIENCE:
                raise SystemExit(f"clients did not move to {wanted}: {self.reports()}")
            time.sleep(0.002)
        self.moves.append(time.perf_counter() - begun)
        # Each report follows a round of calls: by the second one every call was made with what was chosen.
        self.reports()

    def step(self, *args: object) -> None:
        """A command, and the clients' moves. Notes what is compiled although every client had it before."""
        self.wait_for_quiet()
        self.command(*args)
        if self.options.rush:
            return
        before, pair = self.compiled(), (self.folders[self.default], self.folders[FIRST])
        self.settle()
        if pair in self.known:
            self.again += self.compiled() - before
        self.known.add(pair)

    def wait_for_quiet(self) -> None:
        """Waits for compiles of the step before that are still under way: two clients may compile the same."""
        before, now = -1, self.status()
        while now["in_flight"] or now["counters"]["lookups"] != before:
            time.sleep(0.05)
            before, now = now["counters"]["lookups"], self.status()

    def compiled(self) -> int:
        """Frames that the daemon compiled so far."""
        return self.status()["counters"]["compiled"]

    def run(self) -> dict:
        """Everything; gives the figures."""
        options = self.options
        if options.files:
            self.command("add", options.files / f"libflambeau_{options.second}_compile.so")
        builds = [
            build_of(PACKAGE / "_plugins", FIRST, f"{i // 10}.2.{i % 10}", self.folder / f"builds/{i}")
            for i in range(options.upgrades)
        ]
        self.start()
        self.settle()
        names = [options.second, FIRST]
        for i in range(WARM_SWAPS):
            self.step("use", names[i % 2])
        self.settle()
        self.moves.clear()
        before, daemon = self.reports(), memory(self.status()["pid"])
        begun = time.perf_counter()
        every = max(1, options.swaps // max(1, options.upgrades))
        left = list(builds)
        for i in range(options.swaps):
            self.step("use", names[i % 2])
            if left and i % every == every - 1:
                self.step("upgrade", FIRST, left.pop(0))
        for build in left:
            self.step("upgrade", FIRST, build)
        seconds = time.perf_counter() - begun
        # Once more for those that were not waited for.
        self.settle()
        after, status = self.reports(), self.status()
        return self.figures(before, after, daemon, status, seconds)

    def figures(self, before: list[dict], after: list[dict], daemon: dict, status: dict, seconds: float) -> dict:
        """What came of it."""
        options, ended = self.options, memory(status["pid"])
        bodies = {body for r in after for frames in r["bodies"] for body in frames}
        eager = {**merged(r["counters"]["eager_fallbacks"] for r in after)}
        eager |= merged(r["counters"]["eager_graph_reasons"] for r in after)
        found = {
            "clients": options.clients,
            "second": options.second,
            "swaps": options.swaps,
            "upgrades": options.upgrades,
            "seconds": round(seconds, 2),
            "calls": sum(a["calls"] - b["calls"] for a, b in zip(after, before, strict=True)),
            "wrong": sum(r["wrong"] for r in after),
            "raised": [text for r in after for text in r["raised"]],
            "not_compiled": eager,
            "bodies": sorted(bodies),
            "moves": sum(r["counters"]["backend_moves"] for r in after),
            "move_ms": {
                "median": round(1e3 * statistics.median(self.moves), 1),
                "longest": round(1e3 * max(self.moves), 1),
            },
            "compiled": status["counters"]["compiled"],
            "compiled_again": self.again,
            "client_growth": [a["rss"] - b["rss"] for a, b in zip(after, before, strict=True)],
            "client_growth_anonymous": [a["anonymous"] - b["anonymous"] for a, b in zip(after, before, strict=True)],
            "client_rss": [r["rss"] for r in after],
            "daemon_growth": ended["rss"] - daemon["rss"],
            "daemon_rss": ended["rss"],
        }
        grown = max(*found["client_growth"], found["daemon_growth"])
        wrong = found["wrong"] or found["raised"] or eager or bodies != {"native"}
        found["ok"] = not wrong and not found["compiled_again"] and grown <= GROWTH and found["calls"] > 0
        return found

    def close(self) -> None:
        """Ends the clients and the daemon."""
        for one in self.clients:
            one.stdin.close()
            one.wait(30)
        subprocess.run([DAEMON, "stop"], env=self.environment, capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def merged(counts) -> dict[str, int]:
    """Sums by name."""
    total: dict[str, int] = {}
    for one in counts:
        for name, n in one.items():
            total[name] = total.get(name, 0) + n
    return total


def text(found: dict) -> str:
    """For people."""
    mib = [f"{n / 2**20:.1f}" for n in (*found["client_growth"], found["daemon_growth"])]
    return "\n".join(
        [
            f"{found['swaps']} swaps between {FIRST} and {found['second']}, {found['upgrades']} upgrades of {FIRST}, "
            f"{found['clients']} clients, {found['seconds']} s",
            f"calls: {found['calls']}, wrong: {found['wrong']}, failed: {len(found['raised'])}, "
            f"not compiled: {found['not_compiled'] or 'none'}",
            f"from the command to the last client's move: {found['move_ms']['median']} ms (median), "
            f"{found['move_ms']['longest']} ms (longest)",
            f"frames compiled: {found['compiled']}, of which by going back: {found['compiled_again']}",
            f"memory, MiB more than after warm-up: clients {', '.join(mib[:-1])}; daemon {mib[-1]}",
            "ok" if found["ok"] else f"FAILED: {found}",
        ]
    )


def main() -> None:
    """The command line."""
    if sys.argv[1:] == ["client"]:
        return client()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--upgrades", type=int, default=10)
    parser.add_argument("--second", default="opencl", help="the back end beside cpu")
    parser.add_argument("--files", type=Path, help="the folder of its two files, if it does not come with flambeau")
    parser.add_argument("--rush", action="store_true", help="do not wait for the clients between commands")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bench = Bench(options)
    try:
        found = bench.run()
    finally:
        bench.close()
    print(json.dumps(found) if options.json else text(found))
    raise SystemExit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
