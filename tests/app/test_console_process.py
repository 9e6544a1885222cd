"""The console of `bearlake up` and that of `bearlake console`: real processes."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bearlake import __version__
from fixtures.server_process import ServerProcess, finished, lines_of, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration]


def get(url: str, **headers: str) -> Any:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        text = response.read().decode()
    return json.loads(text) if "json" in response.headers["Content-Type"] else text


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("up")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process


def test_the_first_line_of_up_is_the_address_of_the_console(up: ServerProcess) -> None:
    console = up.ready["console"]

    assert lines_of(up.said())[0] == f"Open {console} in a browser: the console"
    assert "<title>Bearlake console</title>" in get(console)


def test_the_console_of_up_uses_the_apis_of_its_process(up: ServerProcess) -> None:
    console = up.ready["console"]

    names = {"admin": "admin", "rest": "rest", "registry": "registry", "catalog": "catalog", "pulsar": "pulsar_http"}
    assert get(f"{console}/api/console")["urls"] == {name: up.ready[listener] for name, listener in names.items()}
    assert get(f"{console}/api/admin/v1/servers")["servers"][0]["endpoints"]["console"] in console
    assert get(f"{console}/api/rest/v3/clusters")["data"][0]["cluster_id"]
    assert get(f"{console}/api/registry/subjects") == []


def test_a_console_alone_needs_no_stores(up: ServerProcess, tmp_path: Path) -> None:
    urls = ["--admin", up.ready["admin"], "--rest", up.ready["rest"], "--registry", up.ready["registry"]]
    with started("console", *urls, ready_file=tmp_path / "console.json") as process:
        console = process.ready["console"]
        servers = get(f"{console}/api/admin/v1/servers")["servers"]
        said = process.said()
        code = process.stop()

    assert [server["version"].startswith(__version__) for server in servers] == [True]
    assert said == f"Open {console} in a browser: the console of {up.ready['admin']}\n"
    assert code == 0


def test_a_console_alone_says_which_api_does_not_answer(tmp_path: Path) -> None:
    with (
        started("console", "--admin", "http://127.0.0.1:1", ready_file=tmp_path / "console.json") as process,
        pytest.raises(urllib.error.HTTPError) as refused,
    ):
        get(f"{process.ready['console']}/api/admin/v1/servers")

    assert refused.value.code == 503
    assert "127.0.0.1:1" in json.loads(refused.value.read())["detail"]


def test_a_console_that_others_reach_does_not_start_before_apis_on_loopback() -> None:
    ended = finished("console", "--host", "0.0.0.0", "--console-port", "0")

    assert ended.returncode == 2
    assert b"console.admin_url" in ended.stderr


def test_wrong_options_end_with_their_exit_codes(up: ServerProcess) -> None:
    port = up.ready["console"].rpartition(":")[2]

    assert finished("console", "--admin", "lake", "--console-port", "0").returncode == 2
    assert finished("console", "--console-port", port).returncode == 3
