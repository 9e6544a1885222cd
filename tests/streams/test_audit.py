"""The audit log: one line for each denial and change, limited in number, without secrets."""

import asyncio
import io
import json
import logging
from typing import Any

import pytest

from bearlake.errors import Conflict, Denied, Invalid, Unavailable
from bearlake.metadata.access_rules import AccessRule, PatternKind, Permission
from bearlake.metadata.open import open_metadata
from bearlake.metadata.quotas import DEFAULT, Entity, QuotaChange, QuotaKey
from bearlake.streams.access.control import AccessControl, AccessSettings
from bearlake.streams.audit import Audit, AuditSettings
from bearlake.streams.principal import INTERNAL, Operation, Principal, Resource, at_host
from bearlake.streams.quotas.control import QuotaControl
from bearlake.telemetry import logs
from bearlake.telemetry.logs import LogSettings

ALICE = at_host(Principal("User", "alice"), "10.0.0.1", "kafka:EXTERNAL")
BOB = at_host(Principal("User", "bob"), "10.0.0.2", "rest")
FIELDS = ("who", "address", "listener", "operation", "resource", "outcome", "reason", "detail")


class Lines(logging.Handler):
    """What was logged, as dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.levels: list[int] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.levels.append(record.levelno)
        self.lines.append({name: vars(record)[name] for name in (*FIELDS, "suppressed_count") if name in vars(record)})


@pytest.fixture
def lines() -> Any:
    handler = Lines()
    log = logging.getLogger("bearlake.audit")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_denial_says_who_where_and_what(lines: Lines) -> None:
    Audit().denied(ALICE, Operation.WRITE, Resource.STREAM, "orders")

    assert lines.lines == [
        {
            "who": "User:alice",
            "address": "10.0.0.1",
            "listener": "kafka:EXTERNAL",
            "operation": "Write",
            "resource": "Topic:orders",
            "outcome": "denied",
            "reason": "access rules",
        }
    ]
    assert lines.levels == [logging.WARNING]


def test_denials_of_one_client_are_limited_and_counted(lines: Lines) -> None:
    clock = Clock()
    audit = Audit(AuditSettings(window_ms=1000, client_line_count_max=2, line_count_max=100), clock)
    for at in range(10):
        audit.denied(ALICE, Operation.READ, Resource.STREAM, f"t{at}")
    audit.denied(BOB, Operation.READ, Resource.STREAM, "t")
    clock.now = 1.0
    audit.denied(ALICE, Operation.READ, Resource.STREAM, "later")

    assert [(line["who"], line["resource"], line.get("suppressed_count")) for line in lines.lines] == [
        ("User:alice", "Topic:t0", None),
        ("User:alice", "Topic:t1", None),
        ("User:bob", "Topic:t", 8),
        ("User:alice", "Topic:later", None),
    ]


def test_denials_of_all_clients_are_limited(lines: Lines) -> None:
    audit = Audit(AuditSettings(client_line_count_max=2, line_count_max=3), Clock())
    for at in range(10_000):
        audit.denied(at_host(ALICE, f"10.0.{at // 250}.{at % 250}"), Operation.READ, Resource.STREAM, "t")

    assert len(lines.lines) == 3


def test_many_addresses_of_one_network_leave_lines_to_others(lines: Lines) -> None:
    audit = Audit(AuditSettings(client_line_count_max=2, line_count_max=20), Clock())
    for at in range(250):
        audit.denied(at_host(ALICE, f"10.0.0.{at}"), Operation.READ, Resource.STREAM, "t")
        audit.denied(at_host(ALICE, f"2001:db8:0:{at:x}::1"), Operation.READ, Resource.STREAM, "t")
    audit.denied(at_host(BOB, "10.0.1.1"), Operation.READ, Resource.STREAM, "secret")

    assert len(lines.lines) <= 20
    assert lines.lines[-1]["resource"] == "Topic:secret"


def test_clients_that_got_no_line_are_named_when_the_window_is_over(lines: Lines) -> None:
    """A client with enough addresses to use all lines of a window cannot hide the denials of others."""
    clock = Clock()
    audit = Audit(AuditSettings(window_ms=1000, client_line_count_max=2, line_count_max=3, silenced_count_max=2), clock)
    for at in range(4):
        audit.denied(at_host(ALICE, f"10.0.{at}.1"), Operation.READ, Resource.STREAM, "t")
    for at in range(3):
        audit.denied(at_host(BOB, f"10.9.0.{at}"), Operation.READ, Resource.STREAM, "secret")
    audit.denied(at_host(BOB, "10.8.0.1"), Operation.READ, Resource.STREAM, "secret")
    audit.denied(at_host(BOB, "10.7.0.1"), Operation.READ, Resource.STREAM, "secret")
    del lines.lines[:]
    clock.now = 1.0
    with audit.change(ALICE, Operation.CREATE, "Topic", "t"):
        pass

    named = [(line["who"], line["address"], line["suppressed_count"]) for line in lines.lines[:-1]]
    assert named == [("User:alice", "10.0.3.0/24", 1), ("User:bob", "10.9.0.0/24", 3), ("", "", 2)]
    assert lines.lines[-1]["outcome"] == "done"


def test_changes_that_were_made_are_never_left_out(lines: Lines) -> None:
    audit = Audit(AuditSettings(client_line_count_max=1, line_count_max=1), Clock())
    for at in range(100):
        with audit.change(ALICE, Operation.CREATE, "Topic", f"t{at}"):
            pass

    assert [line["outcome"] for line in lines.lines] == ["done"] * 100
    assert set(lines.levels) == {logging.INFO}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Invalid("too many"), "failed"),
        (Unavailable("no answer"), "unknown"),
        (asyncio.CancelledError(), "unknown"),
        (Conflict("decide again"), None),
        (Denied("noted already"), None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_change_has_the_outcome_that_its_caller_learns(lines: Lines, error: BaseException, outcome: str) -> None:
    with pytest.raises(type(error)), Audit().change(ALICE, Operation.ALTER, "Topic", "t", "partitions=3"):
        raise error

    assert [(line["outcome"], line["detail"]) for line in lines.lines] == (
        [(outcome, "partitions=3")] if outcome else []
    )


def test_a_change_of_several_resources_logs_a_line_for_each(lines: Lines) -> None:
    with Audit().change(ALICE, Operation.DELETE, "AccessRule") as details:
        details += ["one", "two"]

    assert [(line["resource"], line["detail"]) for line in lines.lines] == [
        ("AccessRule", "one"),
        ("AccessRule", "two"),
    ]


def test_changes_of_the_server_itself_are_not_noted(lines: Lines) -> None:
    with Audit().change(INTERNAL, Operation.ALTER, "Topic", "t"):
        pass

    assert lines.lines == []


def test_a_name_cannot_look_like_another_line(lines: Lines) -> None:
    Audit().denied(ALICE, Operation.READ, Resource.STREAM, "x\n12:00 WARNING bearlake.audit: change\u2028")
    Audit().denied(ALICE, Operation.READ, Resource.STREAM, "y" * 10_000)

    assert lines.lines[0]["resource"] == "Topic:x\\n12:00 WARNING bearlake.audit: change\\u2028"
    assert len(lines.lines[1]["resource"]) < 400


async def test_only_named_resources_are_noted_as_denied(lines: Lines) -> None:
    metadata = await open_metadata("memory:///")
    access = AccessControl(metadata.access, AccessSettings(allow_if_no_rule=False), Audit())
    await access.refresh()
    assert not access.sees(ALICE, Operation.DESCRIBE, Resource.STREAM, "listed")
    assert not access.administers(ALICE, Operation.CREATE)
    assert lines.lines == []

    assert not access.allows(ALICE, Operation.READ, Resource.STREAM, "named")
    assert not access.may_administer(ALICE, Operation.ALTER)
    assert not access.allows_any(ALICE, Operation.WRITE, Resource.STREAM)
    assert [line["resource"] for line in lines.lines] == ["Topic:named", "Cluster:kafka-cluster", "Topic:*"]
    await metadata.close()


async def test_each_change_of_access_rules_is_noted_once(lines: Lines) -> None:
    metadata = await open_metadata("memory:///")
    access = AccessControl(metadata.access)
    write, read = (
        AccessRule(Resource.STREAM, "t", PatternKind.LITERAL, "User:eve", "*", operation, Permission.ALLOW)
        for operation in (Operation.WRITE, Operation.READ)
    )
    await access.create([write], who=BOB)
    await access.replace([write, read], [read], who=BOB)
    await access.replace([write, read], (), who=BOB)
    await access.change(created=[write], deleted=(), revision=access.revision, who=BOB)
    with pytest.raises(Conflict):
        await access.change(created=(), deleted=[write], revision=0, who=BOB)
    await access.change(created=(), deleted=[write], revision=access.revision, who=BOB)
    await access.replace((), [read])

    writes, reads = (f"Allow User:eve {name} on Topic:t from *" for name in ("Write", "Read"))
    assert [(line["who"], line["operation"], line["resource"], line["detail"]) for line in lines.lines] == [
        ("User:bob", "Create", "AccessRule", writes),
        ("User:bob", "Alter", "AccessRule", f"create {reads}"),
        ("User:bob", "Alter", "AccessRule", f"delete {writes}"),
        ("User:bob", "Delete", "AccessRule", reads),
        ("User:bob", "Create", "AccessRule", writes),
        ("User:bob", "Delete", "AccessRule", writes),
    ]
    await metadata.close()


async def test_a_change_of_quotas_names_the_quota_and_its_value(lines: Lines) -> None:
    metadata = await open_metadata("memory:///")
    quotas = QuotaControl(metadata.quotas, audit=Audit())
    alice = Entity(user="alice")
    await quotas.change([QuotaChange(alice, QuotaKey.PRODUCER_BYTE_RATE, 1e6)], who=BOB)
    await quotas.change([QuotaChange(alice, QuotaKey.PRODUCER_BYTE_RATE, None)], who=BOB)

    assert [(line["who"], line["resource"], line["detail"]) for line in lines.lines] == [
        ("User:bob", "Quota", "producer_byte_rate=1000000 for user=alice"),
        ("User:bob", "Quota", "producer_byte_rate=none for user=alice"),
    ]
    await metadata.close()


async def test_a_user_named_like_the_default_is_quoted(lines: Lines) -> None:
    metadata = await open_metadata("memory:///")
    quotas = QuotaControl(metadata.quotas, audit=Audit())
    for user in (DEFAULT, "<default>"):
        await quotas.change([QuotaChange(Entity(user=user), QuotaKey.PRODUCER_BYTE_RATE, 1e6)], who=BOB)

    assert [line["detail"].partition(" for ")[2] for line in lines.lines] == ["user=<default>", 'user="<default>"']
    await metadata.close()


def test_no_level_of_severity_leaves_changes_out() -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    out = io.StringIO()
    try:
        logs.set_up(LogSettings(level="ERROR", format="json"), out)
        with Audit().change(ALICE, Operation.CREATE, "Topic", "t"):
            pass
        logging.getLogger("bearlake.other").info("nothing")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        logging.getLogger("bearlake.audit").setLevel(logging.NOTSET)

    [line] = out.getvalue().splitlines()
    assert json.loads(line)["resource"] == "Topic:t"


def test_refused_logins_are_limited_by_address(lines: Lines) -> None:
    audit = Audit(AuditSettings(client_line_count_max=2), Clock())
    for at in range(5):
        audit.login_refused("PLAIN", f"guess{at}", "10.0.0.1", "kafka", "the user name or the password is wrong")

    assert [(line["who"], line["operation"], line["resource"], line["listener"]) for line in lines.lines] == [
        ("User:guess0", "Login", "PLAIN", "kafka"),
        ("User:guess1", "Login", "PLAIN", "kafka"),
    ]
