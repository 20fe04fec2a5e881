"""Real plug-ins for tests: built by cargo, and spoilt in the ways that files and code generators are."""

import functools
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGED = ROOT / "shim/python/flambeau/_plugins"
HALVES = ("compile", "launch")


@functools.cache
def built(what):
    """The folder with both halves of the template, or of those for tests: faulty, elsewhere, CUDA on the CPU."""
    if what == "template":
        packages, folder = [f"--package=flambeau-template-{half}" for half in HALVES], "target/release"
    elif what == "cuda_source_on_cpu":
        packages, folder = ["--package=flambeau-cuda-source", "--examples"], "target/release/examples"
    else:
        packages, folder = ["--package=flambeau-codegen", "--examples"], "target/release/examples"
    subprocess.run(["cargo", "build", "--release", "--quiet", *packages], cwd=ROOT, check=True, timeout=280)
    return ROOT / folder


def half(folder, name, which):
    """Where this half of a back end lies."""
    return Path(folder) / f"libflambeau_{name}_{which}.so"


def install(folder, name, what, halves=HALVES):
    """Copies halves of a built plug-in to a folder under this name."""
    for which in halves:
        source = half(PACKAGED if what == "cpu" else built(what), what, which)
        shutil.copy(source, half(folder, name, which))


def foreign(data):
    """For a machine of another kind: `e_machine` is AArch64."""
    data[18:20] = (183).to_bytes(2, "little")


def of_another_abi(data):
    """Its version of the interface is 2.0.0."""
    changed = data.replace(b"1.0.0", b"2.0.0")
    assert changed != data
    data[:] = changed


def cut_off(data):
    del data[len(data) // 2 :]


def flipped(data):
    """One bit in the middle of the code: of the segment that may be executed."""
    first, size, count = (int.from_bytes(data[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2)))
    for header in range(first, first + size * count, size):
        kind, flags = (int.from_bytes(data[header + at : header + at + 4], "little") for at in (0, 4))
        if kind == 1 and flags & 1:
            offset, length = (int.from_bytes(data[header + at : header + at + 8], "little") for at in (8, 32))
            data[offset + length // 2] ^= 16
            return
    raise AssertionError("no code")


def garbage(data):
    data[:] = bytes(range(256)) * 64


#: How a file is spoilt, and what is said of it.
DAMAGES = {
    "truncated": (cut_off, "is damaged|is cut off"),
    "bit flipped": (flipped, "is damaged: it is not what was sealed; install it again"),
    "garbage": (garbage, "is no shared library for Linux"),
    "of another machine": (foreign, "is for aarch64, and this machine is"),
    "of another ABI": (of_another_abi, r"was built for plug-in ABI 2\.0\.0, this flambeau has 1\.0\.0"),
}


def spoil(file, how):
    """Damages a file. The seal is taken off before what a whole file of another kind has, too."""
    data = bytearray(file.read_bytes())
    if how in ("of another machine", "of another ABI"):
        del data[data.rindex(b"FLMBSEA1") :]
    DAMAGES[how][0](data)
    file.write_bytes(data)


def seal(folder, name):
    """As plug-ins are laid out."""
    flambeaud = PACKAGED.parent / "_bin/flambeaud"
    subprocess.run([flambeaud, "seal", *(half(folder, name, which) for which in HALVES)], check=True)


def rebuild(folder, name, version):
    """Another build of a plug-in: the same code, which says that its version is this one."""
    folder.mkdir(parents=True)
    install(folder, name, name)
    for which in HALVES:
        file = half(folder, name, which)
        data = bytearray(file.read_bytes())
        if b"FLMBSEA1" in data[-40:]:
            del data[-40:]
        assert b"0.1.0" in data
        file.write_bytes(data.replace(b"0.1.0", version.encode()))
    seal(folder, name)
