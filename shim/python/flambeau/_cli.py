"""The command `flambeau`. What concerns the daemon is `flambeaud`'s own command line; the rest is here."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

PACKAGE = Path(__file__).parent
DAEMON = PACKAGE / "_bin" / "flambeaud"
FORWARDED = {
    "status": "what the daemon does: process, memory, clients, counters",
    "start": "start the daemon now (the first compiled call does it too)",
    "stop": "let the daemon finish its work and exit",
    "backend": "list | use | add | upgrade | remove: what compiles your programs, now and while they run",
    "cache": "stats | clear | why: sizes and hit rates, drop everything, reasons of misses",
    "logs": "print the daemon's log",
    "replay": "re-run a recorded compile offline and compare graph and guards",
}


CHECK = """Compiles, launches and compares with torch every operation on every type, with edge values, and every layout
of memory. The plug-in runs in a process of its own, so that it may end or hang. What its capabilities do not list is
refused, not failed. The status is 0 if nothing failed."""


def version() -> str:
    """The installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("flambeau")
    except PackageNotFoundError:
        return "(not installed)"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="flambeau", description="Compile PyTorch programs through a local daemon.")
    top.add_argument("--json", action="store_true", help="print reports as JSON")
    top.add_argument("--version", action="version", version=f"flambeau {version()}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in FORWARDED.items():
        commands.add_parser(name, help=text)
    for name, text in (
        ("run", "run a script with torch.compile routed to flambeau"),
        ("explain", "run a script so and say what was compiled"),
        ("record", "run a script so and keep each compile in a file, for replay"),
    ):
        script = commands.add_parser(name, help=text)
        if name == "explain":
            script.add_argument("--json", action="store_true", dest="json_after", help="print the report as JSON")
            script.add_argument("--html", metavar="FILE", help="write the report as a page")
        if name == "record":
            script.add_argument("--into", default="flambeau-recordings", help="folder for the recordings")
        script.add_argument("script")
        script.add_argument("args", nargs=argparse.REMAINDER)
    plugin = commands.add_parser(
        "plugin", help="check | seal: run a plug-in through all there is to compile, protect it"
    )
    actions = plugin.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="compare what a plug-in computes with torch", description=CHECK)
    check.add_argument("file", help="either half: libflambeau_NAME_compile.so or libflambeau_NAME_launch.so")
    check.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this, like 'cast' or 'f32'")
    check.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="for one kernel (default: 30)")
    check.add_argument("--json", action="store_true", dest="json_after", help="print the report as JSON")
    seal = actions.add_parser("seal", help="end files in a seal, by which damage is found before they are loaded")
    seal.add_argument("files", nargs="+", help="halves of plug-ins, stripped and patched as they will be installed")
    doctor = commands.add_parser("doctor", help="what is missing, and how to get it")
    doctor.add_argument("--json", action="store_true", dest="json_after")
    return top


def main(argv: list[str] | None = None) -> None:
    """Runs the command line; exits with its status."""
    arguments = sys.argv[1:] if argv is None else argv
    # argparse's REMAINDER takes no option in first place, so what goes to the daemon's command line is told apart here.
    front = [a for a in arguments if a != "--json"]
    if front and front[0] in FORWARDED:
        forward(front[0], front[1:], as_json="--json" in arguments)
    options = parser().parse_args(arguments)
    as_json = options.json or getattr(options, "json_after", False)
    if options.command == "doctor":
        raise SystemExit(doctor(as_json))
    if options.command == "plugin" and options.action == "seal":
        forward("seal", options.files, as_json=False)
    if options.command == "plugin":
        raise SystemExit(check_plugin(options.file, options.only, options.timeout, as_json))
    if options.command == "record":
        import flambeau

        # The package read its variables when it was imported; the script's own processes read them anew.
        os.environ["FLAMBEAU_RECORD_DIR"] = flambeau.config.record_dir = str(Path(options.into).absolute())
        Path(options.into).mkdir(parents=True, exist_ok=True)
    made = run_script(options.script, options.args)
    if options.command == "explain":
        print_explanation(made, as_json, options.html)


def forward(command: str, rest: list[str], as_json: bool) -> NoReturn:
    """Becomes `flambeaud COMMAND ...`."""
    if not DAEMON.exists():
        mode, why = extension_mode()
        lacks = "the installation is incomplete; install the package again" if mode == "full" else why
        raise SystemExit(f"flambeaud is not at {DAEMON}: {lacks}")
    tell_libraries()
    arguments = [str(DAEMON), command, *rest]
    if as_json:
        arguments.append("--json")
    sys.stdout.flush()
    os.execv(str(DAEMON), arguments)


def tell_libraries() -> None:
    """Processes from here on know where code generators find their libraries, as the daemon does from its clients."""
    import flambeau

    os.environ["FLAMBEAU_LIBRARY_PATH"] = os.pathsep.join(flambeau.config.library_path)


def check_plugin(file: str, only: str, timeout: float, as_json: bool) -> int:
    """Runs a plug-in through the conformance kit; 0 if nothing failed."""
    mode, why = extension_mode()
    if mode != "full":
        raise SystemExit(f"plug-ins cannot be checked: {why}")
    from flambeau._check import check

    try:
        report = check(file, only, timeout)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    print(json.dumps(report.json()) if as_json else report)
    return 0 if report.ok else 1


def run_script(script: str, args: list[str]) -> list[Any]:
    """Runs `script` as `__main__` with `torch.compile` replaced by `flambeau.compile`; gives what that compiled."""
    if not Path(script).is_file():
        raise SystemExit(f"no such script: {script}")
    import torch

    import flambeau

    made: list[Any] = []

    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda target: compile(target, **options)
        made.append(flambeau.compile(model, **options))
        return made[-1]

    torch.compile = compile
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).parent.absolute()))
    runpy.run_path(script, run_name="__main__")
    return made


def print_explanation(made: list[Any], as_json: bool, html: str | None) -> None:
    """What became of each compiled callable of a script, and the counters of the process."""
    import flambeau
    from flambeau._page import page
    from flambeau._report import explanation

    found, counts = [explanation(compiled) for compiled in made], flambeau.counters()
    if html is not None:
        Path(html).write_text(page(found, counts), encoding="utf-8")
    if as_json:
        print(json.dumps({"compiled": [e.data for e in found], "counters": counts}))
    elif html is not None:
        print(f"the report is in {html}")
    else:
        for explained in found:
            print(f"{explained.name}\n{explained}\n")
        print_report(counts, as_json)


def backends() -> dict[str, Any]:
    """What `flambeau backend list --json` prints."""
    tell_libraries()
    done = subprocess.run([DAEMON, "backend", "list", "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"backends": [], "problem": done.stderr.strip() or "flambeaud failed"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def doctor(as_json: bool) -> int:
    """Checks the installation; 0 if all is well."""
    checks: list[dict[str, Any]] = []

    def check(what: str, good: bool, remedy: str) -> None:
        checks.append({"check": what, "ok": good, "remedy": "" if good else remedy})

    version = ".".join(map(str, sys.version_info[:3]))
    mode, why = extension_mode()
    full = mode == "full"
    check(f"mode {mode} on Python {version}", full, f"all runs as plain Python: {why}")
    if full:
        check("daemon binary", DAEMON.exists(), "install the package again: its wheel holds flambeaud")
        found = backends() if DAEMON.exists() else {"backends": []}
        rows: dict[str, dict[str, Any]] = {b["name"]: b for b in found["backends"]}
        cpu = rows.get("cpu", {"available": False, "why": "install the package again"})
        check("CPU back end", cpu["available"], cpu["why"])
        name = os.environ.get("FLAMBEAU_BACKEND") or found.get("default", "cpu")
        used = rows.get(name, {"available": False, "why": "`flambeau backend list` says which there are"})
        what = " ".join(["back end in use:", name, *(used[key] for key in ("version", "from") if key in used)])
        check(what, used["available"], f"{used['why']}; `flambeau backend use cpu` goes back")
        if found.get("problem"):
            check("your choice of back ends", False, found["problem"])
    try:
        import torch

        check(f"torch {torch.__version__}", True, "")
    except ImportError as error:
        check("torch", False, f"pip install torch ({error})")
    try:
        import torch

        import flambeau

        right = torch.equal(flambeau.compile(_increment)(torch.ones(3)), torch.full((3,), 2.0))
        counts = flambeau.counters()
        check("a compiled call gives the right result", right, "report it with `flambeau record`")
        if full:
            check("a compiled call is compiled", counts["graphs"] == 1, f"it ran eagerly: {counts['eager_fallbacks']}")
            asked = ", ".join(flambeau._native.asked_of_torch())
            slow = f"calls ask torch for {asked} of tensors, which takes longer"
            check(slow if asked else "tensors are read in place", True, "")
    except Exception as error:
        check("a compiled call", False, f"{type(error).__name__}: {error}")
    print_report({"checks": checks}, as_json)
    return 0 if all(c["ok"] for c in checks) else 1


def extension_mode() -> tuple[str, str]:
    """Whether calls are compiled ("full") or run as plain Python ("wrapper-only"), and why."""
    from flambeau import _extension, _plain

    return _extension.MODE, _plain.WHY


def _increment(x: Any) -> Any:
    return x + 1


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """As JSON, or a line per entry."""
    if as_json:
        print(json.dumps(report))
        return
    for key, value in report.items():
        if isinstance(value, list):
            for row in value:
                print("  ".join(f"{k}: {v}" for k, v in row.items() if v != ""))
        else:
            print(f"{key}: {value}")
