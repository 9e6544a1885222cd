"""Runs each test with both implementations of the kernel.

Without the native kernel, its tests are skipped; with BEARLAKE_KERNEL=require they fail.
"""

import importlib
import os
from types import ModuleType

import pytest


def load(name: str) -> ModuleType:
    """Return the kernel of this name; skips the test if it is not compiled."""
    try:
        return importlib.import_module(f"bearlake.kernel.{name}")
    except ImportError:
        if os.environ.get("BEARLAKE_KERNEL") == "require":
            raise
        pytest.skip(f"bearlake.kernel.{name} is not built: install with a C compiler to test it")


@pytest.fixture(params=["_native", "fallback"], scope="session")
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """Each of the two kernels in turn."""
    return load(request.param)


@pytest.fixture(scope="session")
def native() -> ModuleType:
    """The native kernel."""
    return load("_native")
