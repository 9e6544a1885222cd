"""Which kernel is used: the native one, or the Python one where the native one is missing or was built for other types."""

import os
import subprocess
import sys

TIMEOUT_S = 60

_IMPORT = """
import importlib.abc, importlib.machinery, sys, warnings

others = list(sys.meta_path)

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == "bearlake.kernel._native":
            return importlib.machinery.ModuleSpec(name, self) if {is_there} else None
        return next((spec for other in others if (spec := other.find_spec(name, path, target)) is not None), None)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise ImportError("built for other fields")

sys.meta_path[:] = [Finder()]
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    from bearlake import kernel
print(kernel.IS_NATIVE, *(one.message for one in found))
"""


def imported(wish: str, *, is_there: bool) -> str:
    """Output of a process that imports the kernel; `is_there`: a native kernel exists, but fails its import."""
    environment = {**os.environ, "BEARLAKE_KERNEL": wish}
    code = _IMPORT.format(is_there=is_there)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return done.stdout.strip()


def test_a_native_kernel_that_refuses_its_import_is_not_passed_over_in_silence() -> None:
    said = imported("try", is_there=True)

    assert said == "False the native kernel is not used, build it again: built for other fields"
    assert imported("skip", is_there=True) == "False"


def test_without_a_native_kernel_the_python_one_is_used_without_a_warning() -> None:
    assert imported("try", is_there=False) == "False"
