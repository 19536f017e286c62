"""Put prebuilt native kernels into a wheel: `ATTNLAB_PREBUILD=1 python -m build --wheel`.

Only on request, and never a reason for an install to fail: without a compiler the wheel is the
ordinary pure one, and the kernels are built at their first use or not at all.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/attnlab/evolution/native")


class NativeKernels(BuildHookInterface):
    """Compiles every variant of this machine's architecture into `native/lib`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("ATTNLAB_PREBUILD") != "1":
            return
        root = Path(self.root)
        build, variants = _builder(root)
        wanted = [variants.BASELINE]
        if platform.machine().lower() in ("x86_64", "amd64"):
            wanted += [variants.AVX2, variants.AVX512]
        library = root / NATIVE / "lib"
        library.mkdir(exist_ok=True)
        build.TIMEOUT = 3600.0
        objects = {}
        try:
            for variant in wanted:
                target = library / build.object_name(variant)
                build.compile_to(target, variant)
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
    for name in ("attnlab", "attnlab.evolution", "attnlab.evolution.native"):
        stub = types.ModuleType(name)
        stub.__path__ = [str(root / "src" / name.replace(".", "/"))]
        sys.modules[name] = stub
    build = importlib.import_module("attnlab.evolution.native.build")
    return build, importlib.import_module("attnlab.evolution.native.variants")
