"""Put the study files into a wheel, and on request prebuilt native kernels; and make the README of
a package's page.

`ATTNLAB_PREBUILD=1 python -m build --wheel` adds the kernels. That is never a reason for an install
to fail: without a compiler the wheel is the ordinary pure one, and the kernels are built at their
first use or not at all.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

NATIVE = Path("src/attnlab/evolution/native")
STUDIES = Path("studies")
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
"""A link or a picture of Markdown."""


def package_readme(text: str, address: str) -> str:
    """The README for a package's page, which has no files of the repository beside it.

    Links and pictures of the repository get `address` before them. Without one, pictures are left
    out and links are only their text: no address is invented.
    """

    def changed(found: re.Match[str]) -> str:
        if re.match(r"[a-z]+:|#", found["target"]):
            return found[0]
        if address:
            whole = f"{address.rstrip('/')}/{found['target']}"
            return f"{found['picture']}[{found['text']}]({whole})"
        return "" if found["picture"] else found["text"]

    return LINK.sub(changed, text)


class PackageReadme(MetadataHookInterface):
    """The README in a package's metadata."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        readme = package_readme(text, str(self.config.get("address", "")))
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


class WheelContents(BuildHookInterface):
    """What a wheel has beside the package's own files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # An editable install reads the checkout's own; an sdist is the checkout.
        if version == "editable" or self.target_name != "wheel":
            return
        for file in sorted((Path(self.root) / STUDIES).glob("*.toml")):
            build_data["force_include"][str(file)] = f"attnlab/_studies/{file.name}"
        if os.environ.get("ATTNLAB_PREBUILD") == "1":
            self._add_kernels(build_data)

    def _add_kernels(self, build_data: dict[str, Any]) -> None:
        """Compile every variant of this machine's architecture into `native/lib`."""
        root = Path(self.root)
        build, variants = _builder(root)
        wanted = [variants.BASELINE]
        if platform.machine().lower() in ("x86_64", "amd64"):
            wanted += [variants.AVX2, variants.AVX512, variants.AVX512_NARROW]
        source, library = root / NATIVE / "src", root / NATIVE / "lib"
        library.mkdir(exist_ok=True)
        build.TIMEOUT = 3600.0
        objects = {}
        try:
            for variant in wanted:
                target = library / build.object_name(variant, source)
                build.compile_to(target, variant, source)
                objects[str(target)] = str(target.relative_to(root / "src"))
        except (build.BuildError, OSError) as error:
            self.app.display_warning(f"native kernels are not in the wheel: {error}")
            return
        # All or none: some of them in a wheel for any platform would be wrong.
        build_data["force_include"].update(objects)
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def _builder(root: Path) -> tuple[types.ModuleType, types.ModuleType]:
    """The package's builder, without importing the package: torch is not there during a build."""
    stub = types.ModuleType("attnlab")
    stub.__path__ = [str(root / "src" / "attnlab")]
    sys.modules["attnlab"] = stub
    build = importlib.import_module("attnlab._native_build")
    return build, importlib.import_module("attnlab._native_variants")
