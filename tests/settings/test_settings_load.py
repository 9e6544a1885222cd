"""Reading settings: precedence, names, types, ranges, relations; every message names the setting and who set it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from bearlake.errors import Invalid
from bearlake.settings.load import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another server."""

    host: str = "127.0.0.1"
    """Its address."""
    port: int = 0
    """Its port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """When the writer flushes."""

    linger_ms: float = 5.0
    """Longest wait for company. Longer means fewer objects."""
    object_bytes_max: int = 8192
    """Bytes of one object."""
    flush_bytes: int = 4096
    """Bytes that are flushed at once."""

    def __post_init__(self) -> None:
        if self.flush_bytes > self.object_bytes_max:
            raise ValueError("flush_bytes must not be larger than object_bytes_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where the server listens."""

    port: int = 9092
    """Port; 0 takes a free one."""
    retry_count: int = field(default=3, metadata={"min": 0, "max": 9})
    """Attempts after the first."""
    fsync: bool = True
    """Sync before an answer."""
    zone: str | None = None
    """Zone of this server."""
    mode: Literal["fast", "safe"] = "safe"
    """How to work."""
    tags: tuple[str, ...] = ()
    """Free words."""
    peers: tuple[Peer, ...] = ()
    """Other servers."""
    key_file: str = ""
    """File with the key."""
    writer: Writer = field(default_factory=Writer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """All settings of the example."""

    kafka: Listen = field(default_factory=Listen)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bearlake.yaml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(Invalid) as caught:
        load(Document, written(tmp_path, text), environ)
    return str(caught.value)


def test_without_file_and_environment_everything_has_its_default() -> None:
    loaded = load(Document)

    assert loaded.settings == Document()
    assert set(loaded.sources.values()) == {"default"}


def test_file_environment_and_option_override_in_this_order(tmp_path: Path) -> None:
    path = written(tmp_path, "kafka: {port: 1, zone: a, retry_count: 2}")

    loaded = load(
        Document,
        path,
        {"BEARLAKE_KAFKA__PORT": "2", "BEARLAKE_KAFKA__ZONE": "b"},
        {"kafka.port": (3, "--kafka-port")},
    )

    assert (loaded.settings.kafka.port, loaded.settings.kafka.zone, loaded.settings.kafka.retry_count) == (3, "b", 2)
    assert loaded.sources["kafka", "port"] == "--kafka-port"
    assert loaded.sources["kafka", "zone"] == "environment BEARLAKE_KAFKA__ZONE"
    assert loaded.sources["kafka", "retry_count"] == f"file {path}"
    assert loaded.sources["kafka", "fsync"] == "default"


def test_every_type_is_read_from_a_file(tmp_path: Path) -> None:
    text = """
kafka:
  fsync: false
  mode: fast
  tags: [x, y]
  peers: [{host: h, port: 1}, {}]
  writer: {linger_ms: 250}
"""

    kafka = load(Document, written(tmp_path, text)).settings.kafka

    assert (kafka.fsync, kafka.mode, kafka.tags) == (False, "fast", ("x", "y"))
    assert kafka.peers == (Peer(host="h", port=1), Peer())
    assert kafka.writer.linger_ms == 250.0
    assert isinstance(kafka.writer.linger_ms, float)


def test_every_type_is_read_from_the_environment() -> None:
    environ = {
        "BEARLAKE_KAFKA__FSYNC": "false",
        "BEARLAKE_KAFKA__MODE": "fast",
        "BEARLAKE_KAFKA__TAGS": "x, y",
        "BEARLAKE_KAFKA__PEERS": "[{host: h}]",
        "BEARLAKE_KAFKA__WRITER__LINGER_MS": "0.5",
        "BEARLAKE_KAFKA__ZONE": "123",
    }

    kafka = load(Document, None, environ).settings.kafka

    assert (kafka.fsync, kafka.mode, kafka.tags) == (False, "fast", ("x", "y"))
    assert kafka.peers == (Peer(host="h"),)
    assert (kafka.writer.linger_ms, kafka.zone) == (0.5, "123")


def test_variables_without_a_section_are_not_settings() -> None:
    environ = {"BEARLAKE_ADMIN": "http://x", "BEARLAKE_PORT": "tcp://10.0.0.1:9092", "PATH": "/bin"}

    assert load(Document, None, environ).settings == Document()


def test_an_empty_file_and_an_empty_section_are_accepted(tmp_path: Path) -> None:
    assert load(Document, written(tmp_path, "")).settings == Document()
    assert load(Document, written(tmp_path, "kafka:\n")).settings == Document()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka: {prot: 1}", "kafka.prot: no such setting (file {path}); did you mean kafka.port?"),
        (
            "kafka: {linger_ms: 1}",
            "kafka.linger_ms: no such setting (file {path}); did you mean kafka.writer.linger_ms?",
        ),
        ("kafak: {port: 1}", "kafak: no such setting (file {path}); did you mean kafka?"),
        ("kafka: {qqq: 1}", "kafka.qqq: no such setting (file {path})"),
        ("port: 1", "port: no such setting (file {path}); did you mean kafka.port?"),
        ("kafka: {port: many}", "kafka.port: expected a whole number from 0 to 65535, not 'many' (file {path})"),
        ("kafka: {port: 70000}", "kafka.port: expected a whole number from 0 to 65535, not 70000 (file {path})"),
        ("kafka: {port: true}", "kafka.port: expected a whole number from 0 to 65535, not True (file {path})"),
        ("kafka: {retry_count: 10}", "kafka.retry_count: expected a whole number from 0 to 9, not 10 (file {path})"),
        ("kafka: {fsync: 1}", "kafka.fsync: expected true or false, not 1 (file {path})"),
        ("kafka: {zone: 7}", "kafka.zone: expected text, not 7 (put it in quotes) (file {path})"),
        ("kafka: {mode: slow}", "kafka.mode: expected one of fast, safe, not 'slow' (file {path})"),
        ("kafka: {tags: x}", "kafka.tags: expected a list, not 'x' (file {path})"),
        ("kafka: 1", "kafka is a section: expected a mapping, not 1 (file {path})"),
        ("kafka: {peers: [{}, {prt: 1}]}", "kafka.peers[1]: unknown key 'prt'; known are host, port (file {path})"),
        (
            "kafka: {peers: [{port: -1}]}",
            "kafka.peers[0].port: expected a whole number from 0 to 65535, not -1 (file {path})",
        ),
        (
            "kafka: {writer: {object_bytes_max: 0}}",
            "kafka.writer.object_bytes_max: expected a whole number, at least 1, not 0 (file {path})",
        ),
        (
            "kafka: {writer: {object_bytes_max: 1}}",
            "kafka.writer: flush_bytes must not be larger than object_bytes_max",
        ),
        ("- 1", "{path} must be a mapping of sections, not list"),
    ],
)
def test_a_wrong_file_is_refused_by_path(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == f"settings: {message.format(path=tmp_path / 'bearlake.yaml')}"


def test_a_wrong_variable_is_refused_by_name(tmp_path: Path) -> None:
    assert refusal(tmp_path, environ={"BEARLAKE_KAFKA__PROT": "1"}) == (
        "settings: kafka.prot: no such setting (environment BEARLAKE_KAFKA__PROT); did you mean kafka.port?"
    )
    assert refusal(tmp_path, environ={"BEARLAKE_KAFKA__PORT": "x"}) == (
        "settings: kafka.port: expected a whole number from 0 to 65535, not 'x' (environment BEARLAKE_KAFKA__PORT)"
    )


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, "kafka: {port: x, fsync: 3}", {"BEARLAKE_KAFKA__ZONES": "a"})

    assert message.splitlines()[0] == "settings:"
    assert len(message.splitlines()) == 4


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"absent\.yaml"):
        load(Document, tmp_path / "absent.yaml")


def test_a_file_that_is_not_yaml_is_refused(tmp_path: Path) -> None:
    assert "is not YAML" in refusal(tmp_path, "kafka: {port")
