"""Showing settings: a YAML file with comments that loads back, and rows for programs."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bearlake.settings.load import load
from bearlake.settings.show import as_json, as_rows, as_tree, as_yaml, without_password


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Connections to the database."""

    connection_count_max: int = 4
    """Open connections at once. More commit in parallel; the database pays for each."""
    url: str = "sqlite:///x.db"
    """Where the database is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """This server."""

    zone: str | None = None
    """Availability zone; null when there is none."""
    heartbeat_ms: int = 1000
    """Time between heartbeats."""
    pool: Pool = field(default_factory=Pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The example."""

    server: Server = field(default_factory=Server)
    backup: Pool = field(default_factory=Pool)


GOLDEN = """\
# This server.
server:
  # Availability zone; null when there is none.
  zone: null  # default
  # Time between heartbeats.
  heartbeat_ms: 250  # ms, environment BEARLAKE_SERVER__HEARTBEAT_MS; default 1000
  # Connections to the database.
  pool:
    # Open connections at once. More commit in parallel; the database pays for each.
    connection_count_max: 4  # count, default
    # Where the database is.
    url: postgresql://bear:***@db/lake  # --metadata-url; default sqlite:///x.db

# Connections to the database.
backup:
  # Open connections at once. More commit in parallel; the database pays for each.
  connection_count_max: 4  # count, default
  # Where the database is.
  url: sqlite:///x.db  # default
"""
ENVIRON = {"BEARLAKE_SERVER__HEARTBEAT_MS": "250"}
OPTIONS: dict[str, tuple[object, str]] = {
    "server.pool.url": ("postgresql://bear:hunter2@db/lake", "--metadata-url"),
}


def test_yaml_shows_value_unit_source_and_doc() -> None:
    assert as_yaml(load(Shown, None, ENVIRON, OPTIONS)) == GOLDEN


def test_yaml_is_a_settings_file_that_loads_to_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(as_yaml(load(Shown, None, ENVIRON)))

    assert load(Shown, path).settings == load(Shown, None, ENVIRON).settings


def test_only_changed_omits_defaults() -> None:
    text = as_yaml(load(Shown, None, ENVIRON), only_changed=True)

    assert [line for line in text.splitlines() if "#" not in line[:4].lstrip()] == [
        "server:",
        "  heartbeat_ms: 250  # ms, environment BEARLAKE_SERVER__HEARTBEAT_MS; default 1000",
    ]
    assert as_yaml(load(Shown), only_changed=True) == ""


def test_rows_have_one_entry_per_setting_and_no_password() -> None:
    rows = as_rows(load(Shown, None, ENVIRON, OPTIONS))

    assert [row["setting"] for row in rows] == [
        "server.zone",
        "server.heartbeat_ms",
        "server.pool.connection_count_max",
        "server.pool.url",
        "backup.connection_count_max",
        "backup.url",
    ]
    assert rows[1] == {
        "setting": "server.heartbeat_ms",
        "value": 250,
        "default": 1000,
        "unit": "ms",
        "source": "environment BEARLAKE_SERVER__HEARTBEAT_MS",
        "doc": "Time between heartbeats.",
    }
    assert "hunter2" not in as_json(load(Shown, None, ENVIRON, OPTIONS))
    assert json.loads(as_json(load(Shown))) == as_rows(load(Shown))


def test_tree_has_the_sections() -> None:
    assert as_tree(load(Shown))["server"]["pool"] == {"connection_count_max": 4, "url": "sqlite:///x.db"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://lake:hunter2@db/lake",
        "postgresql://lake:hun/hunter2@db/lake",
        "postgresql://lake:a@hunter2@db/lake",
        "postgresql://db/lake?password=hunter2&sslmode=require",
        "postgresql://db/lake?sslmode=require&sslpassword=hunter2",
        "s3://bucket/prefix?aws_secret_access_key=hunter2",
        "https://account.blob/lake?sv=1&sig=hunter2",
    ],
)
def test_a_password_is_masked_wherever_a_url_may_have_it(url: str) -> None:
    shown = without_password(url)

    assert "hunter2" not in shown
    assert "***" in shown
    assert without_password(f"cannot connect to {url}: timeout").endswith("timeout")


@pytest.mark.parametrize("url", ["postgresql://lake@db/lake?sslmode=require", "file:///a:b/c", "s3://bucket/a@b"])
def test_parts_of_a_url_that_are_not_passwords_are_shown(url: str) -> None:
    assert without_password(url) == url
