"""Build hook: compile the record-batch kernel, or go without it.

The C sources in the rooms of `servers/bearlake/kernel` become one extension module, `bearlake.kernel._native`, of an ordinary
`pip install` (also an editable one). Where no C compiler is found the install still succeeds, and
`bearlake.kernel` uses its Python implementation, which passes the same tests. `BEARLAKE_KERNEL=require` turns a failed
compile into a failed install; `BEARLAKE_KERNEL=skip` does not try.

Source: hatchling's build hook interface (`BuildHookInterface`).
"""

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("servers/bearlake/kernel")
# -g0 undoes the -g of Python's own flags: debugging information was a fifth of the wheel. Profilers still see function names.
# Functions of one file call those of another directly if only the module's entry is visible outside.
FLAGS = [
    "-O3",
    "-g0",
    "-std=c11",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]


class KernelBuildHook(BuildHookInterface):
    """Compiles the kernel in place and marks the wheel as platform-specific when that worked."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and add the extension module to the wheel; see the module's docstring for the settings."""
        wish = os.environ.get("BEARLAKE_KERNEL", "try")
        if self.target_name != "wheel" or wish == "skip":
            return
        try:
            built = compile_kernel(Path(self.root))
        except Exception as error:
            if wish == "require":
                raise
            print(f"bearlake: no native kernel ({error}); the Python one will be used", file=sys.stderr)
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(str(built.relative_to(self.root)))


def compile_kernel(root: Path) -> Path:
    """Compile `bearlake.kernel._native` under `root` and return the path of the shared object."""
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    sources = sorted(str(path.relative_to(root)) for path in (root / PACKAGE).rglob("*.c"))
    depends = sorted(str(path.relative_to(root)) for path in (root / PACKAGE).rglob("*.h"))
    extension = Extension("_native", sources, depends=depends, include_dirs=[str(PACKAGE)], extra_compile_args=FLAGS)
    command = build_ext(Distribution({"name": "bearlake-kernel", "ext_modules": [extension]}))
    command.build_lib = str(root / PACKAGE)
    command.build_temp = str(root / "build" / "kernel")
    before = Path.cwd()
    os.chdir(root)
    try:
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    return root / PACKAGE / command.get_ext_filename("_native")


if __name__ == "__main__":
    print(compile_kernel(Path(__file__).resolve().parent))
