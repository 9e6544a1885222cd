"""One server for all client tests, and every third-party client against it.

`BEARLAKE_TEST_BOOTSTRAP=host:port` uses a server that is already running. A client whose program is missing, or cannot be
fetched, skips its tests with the name of what to install.
"""

import gc
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.messages import Client
from clients.registry import CLIENTS, Unavailable, obtain
from conformance import server
from fixtures.server_process import ServerProcess, started


@pytest.fixture(autouse=True)
def _collect_what_clients_left() -> Iterator[None]:
    """Collect sockets that third-party clients leave to the garbage collector, so that no later test fails for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the server that all client tests share."""
    with server.running(log=tmp_path_factory.mktemp("server") / "bearlake.log") as target:
        yield target.bootstrap


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path) -> Client:
    """Each client in turn."""
    try:
        return obtain(request.param, bootstrap, tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def name() -> str:
    """A name for a topic and a group that no other test uses."""
    return f"clients-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def pulsar_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A `bearlake up` that the tests of Pulsar's clients share."""
    folder = tmp_path_factory.mktemp("pulsar")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process
