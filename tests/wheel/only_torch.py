"""Links torch and what torch needs from the environment of the running Python into the folder that is the argument."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def needed(name, extras, found):
    """Adds to `found` what is installed of a distribution and its requirements: name and extras to the distribution."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return
    for extra in ["", *extras]:
        if (name, extra) in found:
            continue
        found[name, extra] = package
        for line in package.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed(requirement.name, requirement.extras, found)


def main(folder):
    """Links all files and folders that the distributions have at their top."""
    found = {}
    needed("torch", [], found)
    for package in found.values():
        for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            link = Path(folder, name)
            if not link.is_symlink():
                link.symlink_to(package.locate_file(name).resolve())


main(sys.argv[1])
