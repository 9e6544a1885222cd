"""`pulsar-admin` of Apache Pulsar, unmodified, against the HTTP API of a server process. Skipped with a message without Java or Maven."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from conformance import packages, processes
from conformance.java_tools import SHORT_LIVED
from fixtures.server_process import ServerProcess, started

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

POM = Path(__file__).resolve().parent / "pulsar_tools" / "pom.xml"
TOOL_TIMEOUT_S = 90.0
MAIN = "org.apache.pulsar.admin.cli.PulsarAdminTool"
LOGGING = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}

Admin = Callable[..., tuple[bool, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("pulsar-admin")
    config = folder / "bearlake.yaml"
    config.write_text('access: {super_users: ["User:ANONYMOUS"]}\n')
    words = ("up", "--data-dir", folder / "data", "--no-tour", "--config", config)
    with started(*words, ready_file=folder / "ready.json") as process:
        yield process


@pytest.fixture(scope="module")
def admin(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Admin:
    """`admin("topics", "list", …)`: whether it exited with code 0, and its output."""
    try:
        jars = partial(packages.obtain_jars, POM, "pulsar-tools-jars")()
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"PULSAR-ADMIN NOT TESTED: {error}")
    folder = tmp_path_factory.mktemp("admin")
    config = folder / "client.conf"
    config.write_text(f"webServiceUrl={server.ready['pulsar_http']}\n", encoding="utf-8")

    archive = folder / "classes.jsa"

    def run(*words: str, option: str = f"-XX:SharedArchiveFile={archive}") -> tuple[bool, str]:
        command = ["java", *SHORT_LIVED, option, LOGGING, "-cp", f"{jars}/*", MAIN, config, *words]
        log, errors = folder / "admin.log", folder / "admin.err"
        finished = processes.run(command, log=log, errors=errors, timeout_s=TOOL_TIMEOUT_S)
        return finished.is_success, finished.text() + errors.read_text(errors="replace")

    run("tenants", "list", option=f"-XX:ArchiveClassesAtExit={archive}")  # later ones start in half the time
    return run


def test_pulsar_admin_manages_topics(admin: Admin) -> None:
    for words in (
        ("tenants", "create", "acme"),
        ("namespaces", "create", "acme/prod"),
        ("topics", "create-partitioned-topic", "acme/prod/orders", "-p", "2"),
        ("topics", "update-partitioned-topic", "acme/prod/orders", "-p", "3"),
        ("topics", "create", "acme/prod/one"),
    ):
        is_success, said = admin(*words)
        assert is_success, said

    _, listed = admin("topics", "list", "acme/prod")

    names = [f"orders-partition-{index}" for index in range(3)]
    assert [f"persistent://acme/prod/{name}" for name in ["one", *names]] == sorted(listed.split())
    is_success, said = admin("topics", "delete-partitioned-topic", "acme/prod/orders")
    assert is_success, said


def test_pulsar_admin_manages_subscriptions(admin: Admin) -> None:
    for words in (
        ("topics", "create", "read"),
        ("topics", "create-subscription", "read", "-s", "s", "-m", "earliest"),
        ("topics", "skip", "read", "-s", "s", "-n", "1"),
        ("topics", "clear-backlog", "read", "-s", "s"),
        ("topics", "reset-cursor", "read", "-s", "s", "-t", "1h"),
    ):
        is_success, said = admin(*words)
        assert is_success, said

    _, stats = admin("topics", "stats", "read")

    assert json.loads(stats)["subscriptions"]["s"]["msgBacklog"] == 0
    is_success, said = admin("topics", "unsubscribe", "read", "-s", "s")
    assert is_success, said


def test_pulsar_admin_manages_schemas(admin: Admin, tmp_path: Path) -> None:
    given = tmp_path / "order.json"
    given.write_text(json.dumps({"type": "AVRO", "schema": json.dumps(ORDER), "properties": {}}), encoding="utf-8")
    admin("topics", "create", "typed")

    is_success, said = admin("schemas", "upload", "typed", "-f", str(given))

    assert is_success, said
    _, found = admin("schemas", "get", "typed")
    assert json.loads(found)["schemaInfo"]["schema"] == ORDER


def test_pulsar_admin_shows_and_terminates_topics(admin: Admin) -> None:
    for words in (
        ("topics", "create-partitioned-topic", "parted", "-p", "2"),
        ("topics", "create-subscription", "parted", "-s", "s", "-m", "earliest"),
        ("topics", "create", "whole"),
    ):
        is_success, said = admin(*words)
        assert is_success, said

    _, stats = admin("topics", "partitioned-stats", "parted", "--per-partition")
    _, internal = admin("topics", "partitioned-stats-internal", "parted")
    is_success, terminated = admin("topics", "terminate", "whole")
    _, both = admin("topics", "partitioned-terminate", "parted")

    parts = {f"persistent://public/default/parted-partition-{index}" for index in range(2)}
    assert set(json.loads(stats)["partitions"]) == set(json.loads(internal)["partitions"]) == parts
    assert json.loads(stats)["subscriptions"]["s"]["msgBacklog"] == 0
    assert is_success, terminated
    assert "successfully terminated at" in terminated
    assert all(f"Topic {part} successfully terminated" in both for part in parts)


def test_pulsar_admin_sets_policies_of_topics_and_namespaces(admin: Admin) -> None:
    for words in (
        ("topics", "create", "kept"),
        ("topicPolicies", "set-retention", "kept", "-t", "2d", "-s", "10G"),
        ("namespaces", "set-retention", "acme/kept", "-t", "1d", "-s", "-1"),
        ("topics", "create", "acme/kept/follows"),
        ("topicPolicies", "set-deduplication", "kept", "-d"),
        ("topicPolicies", "set-schema-compatibility-strategy", "kept", "-s", "FULL"),
    ):
        is_success, said = admin(*words)
        assert is_success, said

    _, retention = admin("topicPolicies", "get-retention", "kept")
    _, followed = admin("topicPolicies", "get-retention", "acme/kept/follows")
    _, deduplication = admin("topicPolicies", "get-deduplication", "kept")
    _, strategy = admin("topicPolicies", "get-schema-compatibility-strategy", "kept")
    _, policies = admin("namespaces", "policies", "public/default")

    assert json.loads(retention) == {"retentionTimeInMinutes": 2 * 1440, "retentionSizeInMB": 10 * 1024}
    assert json.loads(followed) == {"retentionTimeInMinutes": 1440, "retentionSizeInMB": -1}
    assert (deduplication.strip(), strategy.strip().strip('"')) == ("false", "FULL")
    assert json.loads(policies)["schema_compatibility_strategy"] == "BACKWARD"


def test_pulsar_admin_shows_the_reason_for_unsupported_requests(admin: Admin) -> None:
    is_success, said = admin("topics", "compact", "anything")

    assert not is_success
    assert "not supported" in said
    assert admin("brokers", "healthcheck") == (True, "ok\n")


def test_pulsar_admin_grants_and_revokes_permissions(admin: Admin) -> None:
    topic, role = "persistent://acme/prod/secured", ("--role", "alice")
    for words in (
        ("namespaces", "grant-permission", "acme/prod", *role, "--actions", "consume"),
        ("topics", "grant-permission", topic, *role, "--actions", "produce"),
    ):
        is_success, output = admin(*words)
        assert is_success, output

    _, of_namespace = admin("namespaces", "permissions", "acme/prod")
    _, of_topic = admin("topics", "permissions", topic)

    assert ["alice" in shown and "consume" in shown for shown in (of_namespace, of_topic)] == [True, True]
    assert ["produce" in shown for shown in (of_namespace, of_topic)] == [False, True]
    for words in (
        ("topics", "revoke-permission", topic, *role),
        ("namespaces", "revoke-permission", "acme/prod", *role),
    ):
        is_success, output = admin(*words)
        assert is_success, output
    is_success, output = admin("topics", "revoke-permission", topic, *role)
    assert not is_success
    assert "Permissions are not set at the topic level" in output
