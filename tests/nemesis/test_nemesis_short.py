"""A short run of the nemesis for every change: a minute of faults on a small cluster, with a fixed seed. README.md has longer runs.

`BEARLAKE_TEST_NEMESIS_SEED` draws other faults.
"""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.packages import ObtainFailed, ToolMissing
from fixtures import s3
from nemesis import tools
from nemesis.stores import Storage

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]  # the S3 server's first build takes minutes

RUN = Path(__file__).parent / "run.py"
LOAD_S = 45
TIMEOUT_S = 300
MISSING = 2


@pytest.fixture(scope="module")
def s3_program() -> str:
    """Return the S3 server's program; build it if it is missing."""
    try:
        tools.require_postgresql()
        return str(s3.obtain_versitygw())
    except (ToolMissing, ObtainFailed) as missing:
        pytest.skip(str(missing))


def test_the_object_store_of_the_nemesis_never_replaces_an_object(tmp_path: Path, s3_program: str) -> None:
    """Amazon S3 API, conditional writes: a PUT with `If-None-Match: *` gets 412 if the object exists."""
    import obstore

    storage = Storage(tmp_path / "s3", s3_program)
    storage.start()
    try:
        store = obstore.store.S3Store(
            storage.bucket,
            endpoint=storage.server.endpoint,
            access_key_id="bearlake",
            secret_access_key="bearlake-secret",
            region="us-east-1",
            client_options={"allow_http": True},
        )
        obstore.put(store, "bearlake/wal/one", b"first", mode="create")
        with pytest.raises(obstore.exceptions.AlreadyExistsError):
            obstore.put(store, "bearlake/wal/one", b"second", mode="create")

        assert bytes(obstore.get(store, "bearlake/wal/one").bytes()) == b"first"
        assert storage.keys("wal/") == ["wal/one"]
        with pytest.raises(urllib.error.HTTPError):  # the server requires credentials
            urllib.request.urlopen(storage.server.endpoint, timeout=5)
    finally:
        storage.end()


@pytest.mark.usefixtures("s3_program")
def test_a_minute_of_faults_breaks_no_promise(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    seed = os.environ.get("BEARLAKE_TEST_NEMESIS_SEED", "1")
    report = tmp_path / "report.md"
    keep = tmp_path / "kept"
    words = ["--size", "short", "--seconds", str(LOAD_S), "--seed", seed, "--report", str(report), "--keep", str(keep)]

    done = subprocess.run(
        [sys.executable, str(RUN), *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )

    if done.returncode == MISSING:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    text = report.read_text() if report.exists() else done.stderr[-3000:]
    verdict = keep / "verdict.log"
    record_property("nemesis", text)
    assert done.returncode == 0, text + (verdict.read_text()[:5000] if verdict.exists() else "")
