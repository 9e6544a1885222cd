"""The allocator's settings apply where the C library supports them, and do no harm elsewhere."""

import platform
import subprocess
import sys

import pytest

from bearlake.serving.memory import MemorySettings
from fixtures.waiting import WAIT_S

CODE = "from bearlake.serving.memory import *; print(tune_allocator(MemorySettings()))"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_glibc_takes_all_settings() -> None:
    # In a process of its own: the settings last as long as the process.
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=WAIT_S)

    assert result.stdout.strip() == "True"


def test_thresholds_of_2_gib_and_more_are_refused() -> None:
    with pytest.raises(ValueError, match="less than 2 GiB"):
        MemorySettings(mmap_threshold_bytes=1 << 31)
