"""Unmodified clients create, list and delete access rules as they do with Kafka, and get Kafka's errors when they are denied."""

import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from clients.messages import TIMEOUT_S
from fixtures.server_process import finished, started

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]
    from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern  # type: ignore[import-untyped]
    from kafka.admin import ResourceType as KafkaResourceType

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
MECHANISM = "SCRAM-SHA-512"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose only super user is root; alice has no rights. Their passwords are their names."""
    folder = tmp_path_factory.mktemp("access")
    config = folder / "settings.yaml"
    settings = {
        "metadata": {"url": f"sqlite://{folder}/metadata.db"},
        "object_store": {"url": f"file://{folder}/objects"},
        "admin": {"port": 0},
        "authentication": {"mechanisms": [MECHANISM]},
        "access": {"super_users": ["User:root"], "allow_if_no_rule": False},
    }
    config.write_text(yaml.safe_dump(settings))
    for user in ("root", "alice"):
        made = create_user(user, config)
        assert made.returncode == 0, made.stderr.decode()
    with started("serve", "kafka", "--config", config, ready_file=folder / "ready.json") as server:
        yield server.kafka


def create_user(name: str, config: Path) -> subprocess.CompletedProcess[bytes]:
    return finished("user", "create", name, "--password-file", "-", "--config", config, stdin=f"{name}\n".encode())


def librdkafka(address: str, user: str) -> dict[str, object]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": user,
    }


def produced(address: str, user: str, topic: str) -> KafkaError | None:
    """Produce one record; returns the error of its delivery."""
    outcomes: list[KafkaError | None] = []
    producer = Producer({**librdkafka(address, user), "message.timeout.ms": 30_000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)
    return outcomes[0]


def test_librdkafka_manages_rules_and_is_let_in_by_them(address: str) -> None:
    root = AdminClient(librdkafka(address, "root"))
    assert produced(address, "root", "rd-orders") is None
    refused = produced(address, "alice", "rd-orders")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule = AclBinding(
        ResourceType.TOPIC, "rd-", ResourcePatternType.PREFIXED, "User:alice", "*", AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    root.create_acls([rule])[rule].result(TIMEOUT_S)

    assert produced(address, "alice", "rd-orders") is None

    matching = AclBindingFilter(
        ResourceType.TOPIC, "rd-orders", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert root.describe_acls(matching).result(TIMEOUT_S) == [rule]
    assert root.delete_acls([matching])[matching].result(TIMEOUT_S) == [rule]
    refused = produced(address, "alice", "rd-orders")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_learns_that_it_may_not_manage_rules(address: str) -> None:
    alice = AdminClient(librdkafka(address, "alice"))
    rule = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    with pytest.raises(KafkaException) as refused:
        alice.create_acls([rule])[rule].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_kafka_python_manages_rules(address: str) -> None:
    admin = kafka.KafkaAdminClient(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISM,
        sasl_plain_username="root",
        sasl_plain_password="root",
    )
    try:
        rule = ACL(
            principal="User:bob",
            host="10.0.0.1",
            operation=ACLOperation.READ,
            permission_type=ACLPermissionType.DENY,
            resource_pattern=ResourcePattern(KafkaResourceType.GROUP, "python"),
        )
        created = admin.create_acls([rule])
        assert created["succeeded"] == [rule]
        assert created["failed"] == []
        chosen = ACLFilter("User:bob", None, ACLOperation.ANY, ACLPermissionType.ANY, rule.resource_pattern)
        found, _ = admin.describe_acls(chosen)
        assert found == [rule]
        [(_, deleted, _)] = admin.delete_acls([chosen])
        assert deleted == [rule]
        assert admin.describe_acls(chosen)[0] == []
    finally:
        admin.close()
