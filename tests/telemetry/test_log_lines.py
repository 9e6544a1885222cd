"""Log lines: readable or JSON, data after the message, no secrets."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from bearlake.telemetry.logs import AUDIT, LogSettings, set_up


@pytest.fixture(autouse=True)
def _keep_root_logger() -> Iterator[None]:
    root, audit = logging.getLogger(), logging.getLogger(AUDIT)
    handlers, level, audit_level = list(root.handlers), root.level, audit.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    audit.setLevel(audit_level)


def logged(settings: LogSettings, **extra: object) -> str:
    stream = io.StringIO()
    set_up(settings, stream)
    logging.getLogger("bearlake.test").info("server is ready", extra=extra)
    return stream.getvalue()


def test_json_line_holds_message_and_data() -> None:
    line = json.loads(logged(LogSettings(format="json"), port=9092, host="127.0.0.1"))

    assert line["message"] == "server is ready"
    assert line["level"] == "INFO"
    assert line["logger"] == "bearlake.test"
    assert (line["port"], line["host"]) == (9092, "127.0.0.1")
    assert line["time"].endswith("Z")


def test_text_line_holds_message_and_data() -> None:
    line = logged(LogSettings(format="text"), port=9092)

    assert line.endswith("INFO    bearlake.test: server is ready  port=9092\n")


def test_a_value_in_a_text_line_cannot_look_like_another_field_or_line() -> None:
    line = logged(
        LogSettings(format="text"), resource='Topic:x outcome=done who="User:root"', reason="a\u2028b\n", host="h"
    )
    bare = logged(LogSettings(format="text"), resource="x=y", detail="it's")

    assert line.endswith('  resource="Topic:x outcome=done who=\\"User:root\\"" reason="a\\u2028b\\n" host=h\n')
    assert bare.endswith('  resource="x=y" detail="it\'s"\n')


def test_auto_means_json_when_not_on_a_terminal() -> None:
    assert logged(LogSettings(format="auto")).startswith("{")


def test_secrets_are_masked() -> None:
    text = logged(LogSettings(format="text"), admin_token="hunter2", password="hunter2")

    assert "hunter2" not in text
    assert "admin_token=***" in text


def test_long_values_are_cut() -> None:
    line = json.loads(logged(LogSettings(format="json"), url="x" * 10_000))

    assert len(line["url"]) == 501


def test_severities_below_the_level_are_dropped() -> None:
    assert logged(LogSettings(level="WARNING", format="text")) == ""


@pytest.mark.parametrize(
    ("audit_changes", "expected"),
    [(True, ["done", "failed", "unknown", "denied"]), (False, ["unknown", "denied"])],
    ids=["changes", "without changes"],
)
def test_the_audit_log_is_complete_at_any_level_unless_changes_are_left_out(
    audit_changes: bool, expected: list[str]
) -> None:
    stream = io.StringIO()
    set_up(LogSettings(level="WARNING", format="json", audit_changes=audit_changes), stream)
    audit = logging.getLogger(AUDIT)
    audit.info("change", extra={"outcome": "done"})
    audit.warning("change", extra={"outcome": "failed"})
    audit.warning("change", extra={"outcome": "unknown"})
    audit.warning("denial", extra={"outcome": "denied"})

    assert [json.loads(line)["outcome"] for line in stream.getvalue().splitlines()] == expected


def test_traceback_is_part_of_the_json_line() -> None:
    stream = io.StringIO()
    set_up(LogSettings(format="json"), stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("bearlake.test").exception("failed")

    assert "ValueError: broken" in json.loads(stream.getvalue())["error"]


@pytest.mark.parametrize("name", ["asyncpg.connection", "sqlalchemy.engine", "pyiceberg.io", "root"])
def test_a_librarys_broken_connection_is_one_line(name: str) -> None:
    stream = io.StringIO()
    set_up(LogSettings(format="text"), stream)
    try:
        raise ConnectionError("unexpected connection_lost() call")
    except ConnectionError:
        logging.getLogger(name).exception("Exception while sending command.")

    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("error=\"ConnectionError('unexpected connection_lost() call')\"\n")


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    stream = io.StringIO()
    set_up(LogSettings(format="text"), stream)
    for name in ("bearlake.test", "asyncio", "aiohttp.server"):
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger(name).exception("failed")

    assert stream.getvalue().count("Traceback") == 3


def test_messages_that_a_pool_repeats_while_a_store_is_away_are_not_logged() -> None:
    stream = io.StringIO()
    set_up(LogSettings(format="text"), stream)
    logging.getLogger("sqlalchemy.pool.impl.QueuePool").error("Exception terminating connection")

    assert stream.getvalue() == ""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "name",
    [
        "a\nERROR b",
        "a\r\nb",
        "\x1b[2J",
        "\x9b2J",
        "\x85",
        "\u2028",
        "\u202egnp.exe",
        "\u2066",
        "\x00",
        "\x7f",
        "\ud800",
    ],
    ids=ascii,
)
def test_a_name_that_a_client_chose_is_one_printable_line(form: Any, name: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    set_up(LogSettings(format=form), stream)

    logging.getLogger("bearlake.test").warning("a group is refused", extra={"group": name})

    stream.flush()
    written = stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert written.endswith("\n")
    assert written.removesuffix("\n").isprintable()
    if form == "json":
        assert json.loads(written)["group"] == name
