"""The listener, the names and the settings of docs/pulsar.md; Kafka's and Pulsar's clients read each other's records."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.settings import PulsarSettings
from fixtures.server_process import ServerProcess, started
from fixtures.waiting import WAIT_S

pulsar = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "pulsar.md"
WAIT_MS = int(1000 * WAIT_S)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("TLS NOT TESTED: openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=WAIT_S)
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]) -> Iterator[ServerProcess]:
    """With the second listener of the page."""
    folder = tmp_path_factory.mktemp("docs_pulsar")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    text = (
        block.replace("6651", "0")
        .replace("certificate.pem", str(certificate[0]))
        .replace("key.pem", str(certificate[1]))
    )
    config = folder / "bearlake.yaml"
    config.write_text(text)
    words = ("up", "--data-dir", folder / ".bearlake", "--no-tour", "--config", config)
    with started(*words, ready_file=folder / "ready.json") as process:
        yield process
        assert process.stop() == 0


@contextlib.contextmanager
def connected(url: str, folder: Path, **options: object) -> Iterator[object]:
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(folder / "client.log"))
    client = pulsar.Client(url, operation_timeout_seconds=int(WAIT_S), logger=logger, **options)
    try:
        yield client
    finally:
        client.close()


def test_names_of_the_page() -> None:
    rows = dict(re.findall(r"^\| .*`(persistent://[^`]+)` \| `([^`]+)` \|$", PAGE.read_text(), re.MULTILINE))

    assert len(rows) == 3
    assert {topic: names.parse(topic).stream for topic in rows} == rows


def test_settings_that_the_page_names_exist() -> None:
    known = {field.name for field in fields(PulsarSettings)}
    named = set(re.findall(r"`pulsar\.([a-z_]+)`", PAGE.read_text())) - {"partitioned"}

    assert named
    assert named <= known


def test_kafka_reads_what_pulsar_wrote(server: ServerProcess, tmp_path: Path) -> None:
    with connected(f"pulsar://{server.ready['pulsar']}", tmp_path) as client:
        producer = client.create_producer("p2k", compression_type=pulsar.CompressionType.ZSTD)  # type: ignore[attr-defined]
        for number in range(50):
            producer.send_async(b"v%d" % number, lambda *_: None, partition_key=f"k{number}", properties={"a": "b"})
        producer.flush()
    settings = {"bootstrap.servers": server.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["p2k"])

    messages = []
    while len(messages) < 50:
        found = consumer.consume(50, timeout=WAIT_S)
        assert found, "nothing came"
        messages += found
    consumer.close()

    assert [(message.offset(), message.key(), message.value()) for message in messages] == [
        (number, b"k%d" % number, b"v%d" % number) for number in range(50)
    ]
    assert ("a", b"b") in messages[0].headers()


def test_pulsar_reads_what_kafka_wrote(server: ServerProcess, tmp_path: Path) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.kafka, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(50):
        producer.produce("k2p", b"v%d" % number, b"k%d" % number, headers={"a": b"b"})
    assert producer.flush(WAIT_S) == 0

    with connected(f"pulsar://{server.ready['pulsar']}", tmp_path) as client:
        consumer = client.subscribe("k2p", "s", initial_position=pulsar.InitialPosition.Earliest)  # type: ignore[attr-defined]
        messages = [consumer.receive(WAIT_MS) for _ in range(50)]
        for message in messages:
            consumer.acknowledge(message)

    assert [(message.partition_key(), message.data()) for message in messages] == [
        (f"k{n}", b"v%d" % n) for n in range(50)
    ]
    assert messages[0].properties() == {"a": "b"}


def test_messages_through_the_listener_with_tls(
    server: ServerProcess, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    url = f"pulsar+ssl://{server.ready['pulsar:TLS']}"

    with connected(url, tmp_path, tls_trust_certs_file_path=str(certificate[0])) as client:
        client.create_producer("secret").send(b"value")  # type: ignore[attr-defined]
        consumer = client.subscribe("secret", "s", initial_position=pulsar.InitialPosition.Earliest)  # type: ignore[attr-defined]
        assert consumer.receive(WAIT_MS).data() == b"value"


def test_a_server_of_its_own_on_shared_stores(tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    stores = ("--metadata-url", f"sqlite://{folder}/metadata.db", "--object-store-url", (folder / "objects").as_uri())
    words = ("serve", "pulsar", "--pulsar-port", "0", "--pulsar-http-port", "0", *stores)
    with started(*words, ready_file=tmp_path / "ready.json") as alone:
        with connected(f"pulsar://{alone.ready['pulsar']}", tmp_path) as client:
            consumer = client.subscribe("t", "s")  # type: ignore[attr-defined]
            client.create_producer("t").send(b"value")  # type: ignore[attr-defined]
            assert consumer.receive(WAIT_MS).data() == b"value"

        assert set(alone.ready) == {"pulsar", "pulsar_http", "admin"}
        assert alone.stop() == 0
