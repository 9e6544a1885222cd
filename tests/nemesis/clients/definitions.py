"""Clients that define users, access rules, quotas, schemas and subscriptions over and over: registers whose values are their versions.

    user     SCRAM credentials, by Kafka           ROUNDS + version rounds of hashing
    rule     access rules on one topic, by Kafka   the principals User:1 … User:version
    quota    of one user, by Kafka                 RATE + version bytes per second
    schema   by the registry, in a context of its own   the newest of the versions 1 … version
    subscription   by Pulsar's HTTP API   the entry of one partition that the subscription reads next

If an answer does not come, the request may take effect later, so a definition of another name begins. In a history, a version is written
as a committed offset is (`KIND/NAME` in place of a group), because these are registers, too: `simulator.history` checks both alike.

kafka-python and librdkafka alter no quotas, so these requests are written by hand, in version 0 (Apache Kafka, AlterClientQuotas).
"""

import json
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import confluent_kafka.admin
import requests

from nemesis.script import PULSAR_TOPIC, Script

admin: Any = confluent_kafka.admin
"""Without types: the module does not export its enumerations."""
LOG = ("definitions", 0)
PAUSE_S = 0.5
VERSION_MAX = 6
"""Then another name begins, so that a backup has names that are whole, names that grow, and lacks younger ones."""
TIMEOUT_S = 15.0
ROUNDS, RATE = 4_096, 1_000_000
WRONG = -1
"""The version of a definition whose content is not that of any version."""
ALTER_QUOTAS, DESCRIBE_QUOTAS = 49, 48
ANY = 2
"""Matches all names in a filter of quotas."""
ERRORS = (confluent_kafka.KafkaException, requests.RequestException, OSError, TimeoutError)


class Kind(NamedTuple):
    """A kind of definition: how a client writes a version of a name, and reads the versions of all names at a server of `protocol`."""

    protocol: str
    write: Callable[[str, str, int], Mapping[str, Any]]
    """Returns what the server has answered. Raises one of `ERRORS` if the outcome is unknown."""
    read: Callable[[str], Mapping[str, int]]


def define(script: Script) -> None:
    """Write the next version of one kind after the other."""
    number, version = Counter[str](), Counter[str]()
    while script.is_running:
        for kind, (protocol, write, _) in KINDS.items():
            if not script.addresses(protocol):
                continue
            if version[kind] == VERSION_MAX:
                number[kind] += 1
                version[kind] = 0
            name = f"{script.life}-{number[kind]}"
            version[kind] += 1
            operation = script.history.invoke("commit", group=f"{kind}/{name}", log=LOG, offset=version[kind])
            try:
                answer = write(script.addresses(protocol)[0], name, version[kind])
            except ERRORS as error:
                script.history.unknown(operation, type(error).__name__)
                script.history.note(f"{kind} {type(error).__name__}")
                number[kind] += 1
                version[kind] = 0
            else:
                script.history.ok(operation, **answer)
            script.pause(PAUSE_S)


# -- users and access rules ------------------------------------------------------------------------------------------


def _admin(address: str) -> Any:
    return admin.AdminClient({"bootstrap.servers": address, "socket.timeout.ms": int(TIMEOUT_S * 1000), "log_level": 0})


def write_user(address: str, name: str, version: int) -> Mapping[str, Any]:
    """Give a user's password so many rounds of hashing."""
    rounds = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, ROUNDS + version)
    change = admin.UserScramCredentialUpsertion(name, rounds, b"secret")
    client = _admin(address)  # a client without a name ends before its answer comes
    client.alter_user_scram_credentials([change], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    return {}


def read_users(address: str) -> Mapping[str, int]:
    """Return the versions of all users."""
    client = _admin(address)
    found = client.describe_user_scram_credentials(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    return {
        name: described.scram_credential_infos[0].iterations - ROUNDS
        for name, described in found.items()
        if described.scram_credential_infos
    }


def write_rule(address: str, name: str, version: int) -> Mapping[str, Any]:
    """Add a rule for one more principal."""
    rule = admin.AclBinding(
        admin.ResourceType.TOPIC, name, admin.ResourcePatternType.LITERAL, f"User:{version}", "*",
        admin.AclOperation.READ, admin.AclPermissionType.ALLOW,
    )  # fmt: skip
    client = _admin(address)
    client.create_acls([rule], request_timeout=TIMEOUT_S)[rule].result(TIMEOUT_S)
    return {}


def read_rules(address: str) -> Mapping[str, int]:
    """Return the versions of the rules of all topics: their number, if they are those that it means."""
    everything = admin.AclBindingFilter(
        admin.ResourceType.TOPIC, None, admin.ResourcePatternType.ANY, None, None,
        admin.AclOperation.ANY, admin.AclPermissionType.ANY,
    )  # fmt: skip
    client, principals = _admin(address), dict[str, set[str]]()
    for rule in client.describe_acls(everything, request_timeout=TIMEOUT_S).result(TIMEOUT_S):
        principals.setdefault(rule.name, set()).add(rule.principal)
    return {
        name: len(found) if found == {f"User:{number + 1}" for number in range(len(found))} else WRONG
        for name, found in principals.items()
    }


# -- quotas ----------------------------------------------------------------------------------------------------------


def write_quota(address: str, name: str, version: int) -> Mapping[str, Any]:
    """Set a user's quota."""
    entity = struct.pack(">i", 1) + _text("user") + _text(name)
    operation = struct.pack(">i", 1) + _text("producer_byte_rate") + struct.pack(">d?", RATE + version, False)
    answer = _Answer(_asked(address, ALTER_QUOTAS, struct.pack(">i", 1) + entity + operation + b"\0"))
    _throttle_ms, count, error = answer.take(">iih")
    if count != 1 or error:
        raise OSError(f"AlterClientQuotas answered {error}")
    return {}


def read_quotas(address: str) -> Mapping[str, int]:
    """Return the versions of the quotas of all users."""
    component = _text("user") + struct.pack(">bh", ANY, -1)
    answer = _Answer(_asked(address, DESCRIBE_QUOTAS, struct.pack(">i", 1) + component + b"\0"))
    _throttle_ms, error = answer.take(">ih")
    answer.text()
    if error:
        raise OSError(f"DescribeClientQuotas answered {error}")
    found = {}
    for _ in range(answer.take(">i")[0]):
        names = [(answer.text(), answer.text())[1] for _ in range(answer.take(">i")[0])]
        values = [(answer.text(), answer.take(">d")[0])[1] for _ in range(answer.take(">i")[0])]
        found[names[0]] = int(values[0]) - RATE if len(values) == 1 else WRONG
    return found


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _asked(address: str, api: int, body: bytes) -> bytes:
    """Send one request of version 0, and return the body of its answer. Raises `OSError`."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhi", api, 0, 1) + _text("definitions") + body
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size = answers.read(4)
        answer = answers.read(struct.unpack(">i", size)[0]) if len(size) == 4 else b""
    if len(answer) < 4:
        raise OSError("the connection was closed")
    return answer[4:]


class _Answer:
    """The parts of an answer, in order."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        """Return the next numbers."""
        found = struct.unpack_from(layout, self._content, self._at)
        self._at += struct.calcsize(layout)
        return found

    def text(self) -> str:
        """Return the next string; empty for null."""
        length = max(0, self.take(">h")[0])
        self._at += length
        return self._content[self._at - length : self._at].decode()


# -- schemas ---------------------------------------------------------------------------------------------------------


def subject_of(name: str) -> str:
    """Return the subject of a name. Its context is as young as the name, so that some contexts are younger than the backup."""
    return f":.of-{name}:{name}"


def write_schema(address: str, name: str, version: int) -> Mapping[str, Any]:
    """Register the next version of a subject; the answer has its id."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [], "doc": str(version)})
    answer = requests.post(
        f"http://{address}/subjects/{subject_of(name)}/versions", json={"schema": schema}, timeout=TIMEOUT_S
    )
    answer.raise_for_status()
    return {"id": answer.json()["id"]}


def read_schemas(address: str) -> Mapping[str, int]:
    """Return the versions of all subjects: the newest one, if each has the content that it means, also by its id."""
    found = {}
    for subject in _get(address, "/subjects?subjectPrefix=:*:"):
        name, newest = subject.rpartition(":")[2], 0
        for version in _get(address, f"/subjects/{subject}/versions"):
            row = _get(address, f"/subjects/{subject}/versions/{version}")
            of_id = _get(address, f"/schemas/ids/{row['id']}?subject={subject}")
            is_right = all(json.loads(item["schema"])["doc"] == str(version) for item in (row, of_id))
            newest = version if is_right and version == newest + 1 else WRONG
        found[name] = newest
    return found


def _get(address: str, path: str) -> Any:
    answer = requests.get(f"http://{address}{path}", timeout=TIMEOUT_S)
    answer.raise_for_status()
    return answer.json()


# -- subscriptions ---------------------------------------------------------------------------------------------------

TOPIC = f"/admin/v2/persistent/public/default/{PULSAR_TOPIC}-partition-0"


def write_subscription(address: str, name: str, version: int) -> Mapping[str, Any]:
    """Create a subscription at an entry, or move it there."""
    ledger = _get(address, f"{TOPIC}/internalStats")["ledgers"][0]["ledgerId"]
    place = {"ledgerId": ledger, "entryId": version, "partitionIndex": -1}
    url = f"http://{address}{TOPIC}/subscription/{name}"
    if version == 1:
        answer = requests.put(url, json=place, timeout=TIMEOUT_S)
    else:
        answer = requests.post(f"{url}/resetcursor", json=place, timeout=TIMEOUT_S)
    answer.raise_for_status()
    return {}


def read_subscriptions(address: str) -> Mapping[str, int]:
    """Return the entries at which the subscriptions are. Consumers have others."""
    cursors = _get(address, f"{TOPIC}/internalStats")["cursors"]
    return {
        name: int(cursor["readPosition"].partition(":")[2])
        for name, cursor in cursors.items()
        if name.startswith("define-")
    }


KINDS: Mapping[str, Kind] = {
    "user": Kind("kafka", write_user, read_users),
    "rule": Kind("kafka", write_rule, read_rules),
    "quota": Kind("kafka", write_quota, read_quotas),
    "schema": Kind("registry", write_schema, read_schemas),
    "subscription": Kind("pulsar_http", write_subscription, read_subscriptions),
}
