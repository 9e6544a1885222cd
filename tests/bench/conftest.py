"""The benchmark programs live in `bench/`, outside of any package: put the repository's root on the import path."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.postgresql import ABSENT, find_program
from fixtures.s3 import find_versitygw

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def bench_folder() -> Iterator[Path]:
    """An empty folder that PostgreSQL's account can enter, unlike pytest's; deleted afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bearlake-bench-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def stores() -> None:
    """Skip the test if the programs of the shared stores are missing, or gcc, which the load generator needs."""
    if find_program("initdb") is None:
        pytest.skip(ABSENT)
    if find_versitygw() is None:
        pytest.skip("needs Versity S3 Gateway on PATH or in .cache/bin")
    if shutil.which("gcc") is None:
        pytest.skip("the load generator needs gcc")
