"""A server never serves clients without a login because their protocol cannot log in: it refuses to start, and says what to set."""

from base64 import b64encode
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from fixtures.logins import AUDIENCE, ISSUER, Logins
from fixtures.server_process import finished, started

pytestmark = pytest.mark.integration


def settings(folder: Path, mechanism: str = "SCRAM-SHA-512", **listeners: object) -> Path:
    document = {
        "metadata": {"url": f"sqlite://{folder}/metadata.db"},
        "object_store": {"url": f"file://{folder}/objects"},
        "admin": {"port": 0},
        "authentication": {"mechanisms": [mechanism]},
        "listeners": {name: {"port": 0} for name in ("pulsar", "pulsar_http", "registry", "rest", "catalog", "grpc")}
        | listeners,
    }
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("role", "listener"),
    [("pulsar", "pulsar"), ("rest", "registry"), ("catalog", "catalog"), ("grpc", "grpc")],
    ids=["pulsar", "rest", "catalog", "grpc"],
)
def test_a_protocol_without_logins_does_not_start_where_clients_must_log_in(
    tmp_path: Path, role: str, listener: str
) -> None:
    result = finished("serve", role, "--config", settings(tmp_path))
    assert result.returncode == 2
    assert f"listeners.{listener}.anonymous: true" in result.stderr.decode()


def test_a_protocol_that_serves_everybody_by_setting_starts(tmp_path: Path) -> None:
    config = settings(tmp_path, grpc={"port": 0, "anonymous": True})
    with started("serve", "grpc", "--config", config, ready_file=tmp_path / "ready.json") as server:
        assert server.ready["grpc"]


@pytest.mark.parametrize("role", ["kafka", "pulsar", "rest", "grpc"])
def test_a_listener_for_other_machines_does_not_start_without_a_login_unless_a_setting_says_so(
    tmp_path: Path, role: str
) -> None:
    config = settings(tmp_path, **{role: {"port": 0, "host": "0.0.0.0"}})
    document = yaml.safe_load(config.read_text())
    document["authentication"] = {}
    config.write_text(yaml.safe_dump(document))

    result = finished("serve", role, "--config", config)

    assert result.returncode == 2
    (line,) = result.stderr.decode().splitlines()
    assert f"listeners.{role}: other machines reach 0.0.0.0:0" in line
    assert "authentication.anonymous: true" in line


@pytest.mark.parametrize(
    ("authentication", "listener"),
    [({"anonymous": True}, {}), ({}, {"anonymous": True})],
    ids=["for all listeners", "for one listener"],
)
@pytest.mark.parametrize("role", ["kafka", "grpc"])
def test_a_listener_that_serves_everyone_by_a_setting_says_so_at_start(
    tmp_path: Path, role: str, authentication: dict[str, bool], listener: dict[str, bool]
) -> None:
    config = settings(tmp_path, **{role: {"port": 0, "host": "0.0.0.0", **listener}})
    document = yaml.safe_load(config.read_text())
    document["authentication"] = authentication
    config.write_text(yaml.safe_dump(document))

    with started("serve", role, "--config", config, ready_file=tmp_path / "ready.json") as server:
        assert server.ready[role]
        assert "clients from other machines need no login" in server.said()


def test_a_super_user_administers_by_token_while_other_listeners_need_no_login(tmp_path: Path) -> None:
    """As the Kubernetes operator does with the token of its service account."""
    operator = "system:serviceaccount:lake:lake-operator"
    logins = Logins(tmp_path)
    config = settings(tmp_path)
    document = yaml.safe_load(config.read_text())
    token = {"issuer": ISSUER, "audience": AUDIENCE, "keys_file": str(logins.keys_file)}
    document["authentication"] = {"token": token}
    document["access"] = {"super_users": [f"User:{operator}"]}
    (tmp_path / "token").write_text("the-token-of-servers")
    document["admin"]["token_file"] = str(tmp_path / "token")
    config.write_text(yaml.safe_dump(document))

    with started("serve", "rest", "--config", config, ready_file=tmp_path / "ready.json") as server:

        def status(**claims: str) -> int:
            try:
                with urlopen(
                    Request(f"{server.admin}/v1/access", headers=logins.bearer(**claims)), timeout=30
                ) as answer:
                    return int(answer.status)
            except HTTPError as error:
                with error:
                    return error.code

        assert status(sub=operator) == 200
        assert status(sub="system:serviceaccount:team:default") == 403
        assert status(sub=operator, aud="https://kubernetes.default.svc") == 401
        with urlopen(server.ready["rest"] + "/topics", timeout=30) as answer:
            assert answer.status == 200


def test_prometheus_reads_metrics_by_a_token_that_opens_nothing_else(tmp_path: Path) -> None:
    config = settings(tmp_path, grpc={"port": 0, "anonymous": True})
    document = yaml.safe_load(config.read_text())
    for setting, token in (("token_file", "the-token-of-servers"), ("metrics_token_file", "the-metrics-token")):
        (tmp_path / setting).write_text(token)
        document["admin"][setting] = str(tmp_path / setting)
    config.write_text(yaml.safe_dump(document))
    bearer = {"Authorization": "Bearer the-metrics-token"}

    with started("serve", "grpc", "--config", config, ready_file=tmp_path / "ready.json") as server:
        with urlopen(Request(f"{server.admin}/metrics", headers=bearer), timeout=30) as answer:
            assert b"bearlake_server_" in answer.read()
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{server.admin}/v1/streams", headers=bearer), timeout=30)
        with refused.value as denial:
            assert denial.code == 403


def test_the_http_apis_require_a_login(tmp_path: Path) -> None:
    config = settings(tmp_path, "PLAIN")
    assert (
        finished("user", "create", "alice", "--config", config, "--password-file", "-", stdin=b"secret").returncode == 0
    )
    with started("serve", "rest", "--config", config, ready_file=tmp_path / "ready.json") as server:
        for url in (server.ready["rest"] + "/topics", server.ready["registry"] + "/subjects"):
            with pytest.raises(HTTPError) as refused:
                urlopen(url, timeout=30)
            with refused.value as answer:
                assert answer.code == 401
            login = {"Authorization": "Basic " + b64encode(b"alice:secret").decode()}
            with urlopen(Request(url, headers=login), timeout=30) as answer:
                assert answer.status == 200
