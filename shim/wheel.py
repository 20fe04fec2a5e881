"""What only a build of wheels knows: hooks of hatchling, which otherwise does what `pyproject.toml` says.

`cargo xtask wheel` says by FLAMBEAU_WHEEL_TAG what the wheel is for, and by FLAMBEAU_WHEEL_FILES in which folder the
compiled files are that go into the package; a wheel for Pythons without an extension has none.
"""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class CompiledFiles(BuildHookInterface):
    """The wheel's tag and its compiled files. An editable install has them in the package's folder."""

    def initialize(self, version, build_data):
        if version == "editable":
            return
        tag, files = os.environ.get("FLAMBEAU_WHEEL_TAG"), os.environ.get("FLAMBEAU_WHEEL_FILES")
        if not tag:
            raise SystemExit("run `cargo xtask wheel`, which compiles what goes into wheels first")
        build_data["tag"] = tag
        if files:
            build_data["pure_python"] = False
            build_data["force_include"][files] = "flambeau"


class Versions(MetadataHookInterface):
    """The versions of Python that there is an extension for; `flambeau/_extension.py` names them to users of others."""

    def update(self, metadata):
        layouts = Path(self.root, "shim/src/python/layout").glob("v3*.rs")
        minors = sorted(int(layout.stem.removeprefix("v3")) for layout in layouts)
        versions = [f"Programming Language :: Python :: 3.{minor}" for minor in minors]
        metadata["classifiers"] = ["Operating System :: POSIX :: Linux", "Programming Language :: Rust", *versions]
