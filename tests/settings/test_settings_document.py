"""The real settings document: every setting is explained, its file form loads back, relations are checked."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from bearlake.errors import Invalid
from bearlake.settings import schema
from bearlake.settings.document import Settings, load_document
from bearlake.settings.show import as_yaml

SETTINGS = list(schema.walk(Settings))


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_every_setting_has_a_description(setting: schema.Setting) -> None:
    assert setting.doc.endswith("."), f"{setting.name} needs a docstring of whole sentences below it"


def test_sections_are_frozen() -> None:
    def check(section: Any) -> None:
        assert type(section).__dataclass_params__.frozen, type(section).__name__
        for field in fields(section):
            value = getattr(section, field.name)
            if is_dataclass(value):
                check(value)

    check(Settings())


def test_the_shown_document_loads_back_to_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "bearlake.yaml"
    path.write_text(as_yaml(load_document(None, {})))

    assert load_document(path, {}).settings == Settings()


def test_an_object_store_in_the_cloud_lingers_longer_by_default() -> None:
    url = {"BEARLAKE_OBJECT_STORE__URL": "s3://bucket/prefix"}
    told = {**url, "BEARLAKE_STREAMS__WRITER__LINGER_MS": "20"}

    assert load_document(None, {}).settings.streams.writer.linger_ms == 5.0
    assert load_document(None, {}).settings.streams.writer.flush_when_idle is True
    assert load_document(None, url).settings.streams.writer.linger_ms == 250.0
    assert load_document(None, url).settings.streams.writer.flush_when_idle is False
    assert load_document(None, url).sources["streams", "writer", "linger_ms"] == "default of object stores"
    assert load_document(None, told).settings.streams.writer.linger_ms == 20.0


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"BEARLAKE_STREAMS__WRITER__FLUSH_BYTES": "99999999"},
            r"streams\.writer\.flush_bytes \(99999999\) .*streams\.writer\.object_bytes_max",
        ),
        (
            {"BEARLAKE_KAFKA__REQUEST_BYTES_MAX": "999999999"},
            r"kafka\.request_bytes_max \(999999999\) .*kafka\.receive_bytes_max",
        ),
        (
            {"BEARLAKE_PULSAR__UNCOMPRESSED_BYTES_MAX": "1000"},
            r"pulsar\.message_bytes_max \(5242880\) .*pulsar\.uncompressed_bytes_max \(1000\)",
        ),
        ({"BEARLAKE_SERVER__TIMEOUT_MS": "1500"}, r"server: timeout_ms .*heartbeat_ms"),
        ({"BEARLAKE_LISTENERS__KAFKA_MORE": "[{port: 9093}]"}, r"^settings: listeners: "),
        ({"BEARLAKE_LISTENERS__KAFKA__TLS_KEY_FILE": "k.pem"}, r"listeners\.kafka: .*tls_key_file"),
        (
            {"BEARLAKE_SPARK__HEAP_BYTES": "400000000"},
            r"spark\.heap_bytes: .* 503316480",
        ),
        ({"BEARLAKE_MEMORY__ARENA_COUNT": "0"}, r"memory\.arena_count: .* 1"),
    ],
)
def test_contradicting_settings_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        load_document(None, environ)


def test_a_grpc_connection_by_certificate_does_not_outlive_a_session() -> None:
    longer = {"BEARLAKE_GRPC__CONNECTION_AGE_MS": "60000", "BEARLAKE_AUTHENTICATION__SESSION_MS_MAX": "59999"}
    certificates = {
        f"BEARLAKE_LISTENERS__GRPC__TLS_{name}_FILE": "a.pem" for name in ("CERTIFICATE", "KEY", "CLIENT_CA")
    }
    message = r"grpc\.connection_age_ms \(60000\) must not be larger than authentication\.session_ms_max \(59999\)"

    with pytest.raises(Invalid, match=message):
        load_document(None, longer | certificates)
    load_document(None, longer)  # without certificates, every call logs in
    load_document(None, longer | certificates | {"BEARLAKE_GRPC__CONNECTION_AGE_MS": "59999"})
