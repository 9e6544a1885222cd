"""Unmodified clients use more than their quotas: each is throttled as by its own native server, and loses and repeats nothing.

Kafka clients get responses that say how long to wait, and note it where they have a metric, a callback or a log for it. Pulsar clients are
not told: their connection is not read. curl gets 429, grpcurl RESOURCE_EXHAUSTED, each with the time after which the request succeeds.
`bearlake.client` waits by itself. One server serves all of them.
"""

import base64
import itertools
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka import Producer

from bearlake.client import Client, ClientSettings, Overloaded
from clients.messages import TIMEOUT_S, Message
from clients.registry import CLIENTS, Unavailable, obtain
from clients.throttling import RATE, READS, SECONDS_MIN, SIZES, WRITES, LimitedServer, limited_server, values
from conformance import packages, processes
from conformance.java_tools import SHORT_LIVED, TOOLS, JavaTools
from fixtures.waiting import WAIT_S

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    # Warnings of third-party libraries are not ours to fix.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

SOURCES = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedServer]:
    with limited_server(tmp_path_factory.mktemp("throttling")) as limited:
        yield limited


def obtained(name: str, obtain: Callable[[], Path]) -> Path:
    try:
        return obtain()
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"{name} NOT TESTED: {error}")


# -- Kafka ----------------------------------------------------------------------------------------------------------------

SIGNS: Mapping[str, tuple[str, str]] = {
    "kafka-python": ("Produce.* throttled by broker", "Fetch.* throttled by broker"),
    "franz-go": ("throttled for", "throttled for"),
    "kafkajs": ("Client side throttling in effect", "Client side throttling in effect"),
}
"""What a client itself says when it is throttled as a producer and as a consumer. librdkafka, kcat and Java have tests of their own.
aiokafka says nothing: it ignores how long it should wait, and the server does not read its next requests until then."""


@pytest.mark.parametrize("kind", list(CLIENTS))
def test_a_kafka_client_writes_and_reads_each_record_once(
    server: LimitedServer, kind: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        client = obtain(kind, server.process.kafka, tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))
    written = [Message(value) for value in values()]
    client.create_topic(name, 1)

    with server.throttles(WRITES, READS):
        client.produce(name, written)
        read = client.consume(name, name, len(written))

    assert [message == original for message, original in zip(read, written, strict=True)] == [True] * len(written)
    assert server.end_offset(name) == len(written)
    for sign, log in zip(SIGNS.get(kind, ("", "")), ("produce.err", "consume.err"), strict=True):
        said = caplog.text + ((tmp_path / log).read_text() if (tmp_path / log).exists() else "")
        assert re.search(sign, said), f"{kind} did not note in {log} that it was throttled"


def test_librdkafka_tells_its_program_that_it_is_throttled(server: LimitedServer, name: str) -> None:
    throttled: list[float] = []
    outcomes: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": server.process.kafka,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    for value in values():
        producer.produce(name, value, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(TIMEOUT_S)

    assert outcomes == [None] * len(SIZES)
    assert max(throttled) > 0
    assert server.end_offset(name) == len(SIZES)


def test_connections_of_one_user_keep_to_its_quota_together(server: LimitedServer, name: str) -> None:
    producers = [Producer({"bootstrap.servers": server.process.kafka}) for _ in range(4)]
    outcomes: list[object] = []
    begin = time.monotonic()
    for producer in producers:
        producer.produce(name, b"x" * RATE, on_delivery=lambda error, _: outcomes.append(error))
    for producer in producers:
        producer.flush(TIMEOUT_S)

    assert outcomes == [None] * len(producers)
    assert server.end_offset(name) == len(producers)
    assert time.monotonic() - begin >= len(producers) - 1 - 0.1


def test_kcat_says_that_it_is_throttled(server: LimitedServer, name: str) -> None:
    """A batch for each message: kcat ends with the last receipt, and says nothing of what comes with it."""
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    command = [kcat, "-b", server.process.kafka, "-P", "-t", name, "-X", "batch.num.messages=1"]
    lines = b"".join(value + b"\n" for value in values())
    ended = subprocess.run(command, input=lines, capture_output=True, timeout=WAIT_S, check=False)

    assert ended.returncode == 0, ended.stderr.decode()
    assert re.search(rb"throttled request for [1-9]\d*ms", ended.stderr)
    assert server.end_offset(name) == len(SIZES)


def test_the_java_client_measures_that_it_is_throttled(server: LimitedServer, name: str, tmp_path: Path) -> None:
    obtained("THE JAVA CLIENT", packages.obtain_kafka_jars)
    tools = JavaTools(bootstrap=server.process.kafka, logs=tmp_path)
    size = ["--num-records", "3", "--record-size", "130000", "--throughput", "-1"]
    producer = tools.run(f"{TOOLS}.ProducerPerformance", "--topic", name, *size, "--print-metrics")
    group = ["--num-records", "3", "--group", name, "--print-metrics"]
    consumer = tools.run(f"{TOOLS}.ConsumerPerformance", "--topic", name, *group)

    assert re.search(r"^3 records sent", producer.text(), re.MULTILINE), producer.tail(20)
    assert java_metric(producer, "produce-throttle-time-avg") > 0
    assert ", 3, " in consumer.text(), consumer.tail(20)
    assert java_metric(consumer, "fetch-throttle-time-avg") > 0


def java_metric(finished: processes.Finished, name: str) -> float:
    """The value of a client's metric as the performance tools print it."""
    found = re.search(rf"{name}:\S* *: *(\S+)", finished.text())
    assert found is not None, finished.tail(20)
    return float(found[1])


# -- Pulsar ---------------------------------------------------------------------------------------------------------------

NUMBERED = [f"{number} {size}" for number, size in enumerate(SIZES)]
"""What Pulsar's clients say about the messages that they have read."""


def pulsar_python(server: LimitedServer, topic: str, folder: Path) -> list[str]:
    """Pulsar's Python client sends all messages without waiting for receipts, and reads them."""
    pulsar: ModuleType = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    outcomes: list[object] = []
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(folder / "client.log"))
    client = pulsar.Client(f"pulsar://{server.process.ready['pulsar']}", logger=logger)
    try:
        producer = client.create_producer(topic, batching_enabled=False)
        for value in values():
            producer.send_async(value, lambda result, _: outcomes.append(result))
        producer.flush()
        producer.close()
        assert outcomes == [pulsar.Result.Ok] * len(SIZES)
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        messages = [reader.read_next(int(WAIT_S * 1000)).data() for _ in SIZES]
        return [f"{message.partition(b' ')[0].decode()} {len(message)}" for message in messages]
    finally:
        client.close()


def pulsar_program(program: list[str | Path], topic: str, folder: Path) -> list[str]:
    """A program of ours around one of Pulsar's clients does the same (`pulsar_go/paced.go`, `pulsar_java/PulsarPaced.java`)."""
    log, errors = folder / "paced.log", folder / "paced.err"
    ended = processes.run([*program, topic, *map(str, SIZES)], log=log, errors=errors, timeout_s=WAIT_S)
    assert ended.is_success, f"{ended.tail()} {errors.read_text(errors='replace')[-1000:]}"
    said, *read = ended.text().splitlines()
    assert said == "sent"
    return read


def pulsar_go(server: LimitedServer, topic: str, folder: Path) -> list[str]:
    program = obtained("PULSAR'S GO CLIENT", partial(packages.obtain_go_program, SOURCES / "pulsar_go"))
    return pulsar_program([program, "paced", f"pulsar://{server.process.ready['pulsar']}"], topic, folder)


def pulsar_java(server: LimitedServer, topic: str, folder: Path) -> list[str]:
    sources = SOURCES / "pulsar_java"
    jars = obtained("PULSAR'S JAVA CLIENT", partial(packages.obtain_jars, sources / "pom.xml", "pulsar-jars"))
    classes = obtained("PULSAR'S JAVA CLIENT", partial(packages.obtain_java_program, sources, jars))
    logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
    program: list[str | Path] = ["java", *SHORT_LIVED, logging, "-cp", f"{classes}:{jars}/*", "PulsarPaced"]
    return pulsar_program([*program, f"pulsar://{server.process.ready['pulsar']}"], topic, folder)


@pytest.mark.parametrize("client", [pulsar_python, pulsar_go, pulsar_java], ids=["python", "go", "java"])
def test_a_pulsar_client_writes_no_faster_than_its_quota_and_reads_all(
    server: LimitedServer, client: Callable[[LimitedServer, str, Path], list[str]], name: str, tmp_path: Path
) -> None:
    begin = time.monotonic()
    with server.throttles(WRITES, READS):
        read = client(server, name, tmp_path)

    assert read == NUMBERED
    assert server.end_offset(name) == len(SIZES)
    assert time.monotonic() - begin >= SECONDS_MIN


# -- HTTP and gRPC --------------------------------------------------------------------------------------------------------


def test_curl_succeeds_after_the_pause_that_the_server_names(server: LimitedServer, name: str, tmp_path: Path) -> None:
    """`--retry` lets curl wait as long as Retry-After says, and try again."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body, headers = tmp_path / "body.json", tmp_path / "headers"
    value = base64.b64encode(values()[0]).decode()
    body.write_text(json.dumps({"records": [{"value": value}]}))
    url = f"{server.process.ready['rest']}/topics/{name}"
    words = ["-sS", "--retry", "9", "-H", "Content-Type: application/vnd.kafka.binary.v2+json", "-d", f"@{body}"]
    with server.throttles(WRITES):
        outputs: list[str | Path] = ["-o", tmp_path / "answer", url]
        command: list[str | Path] = [curl, *words, "-D", headers, *outputs * 3]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert ended.returncode == 0, ended.stderr
    answers = re.split(r"^HTTP/\S+ (?=\d)", headers.read_text(), flags=re.MULTILINE)[1:]
    refused = [answer for answer in answers if not answer.startswith("200")]
    assert len(answers) - len(refused) == 3
    assert refused
    assert ("429", "429") not in itertools.pairwise(answer[:3] for answer in answers), "a pause was too short"
    for answer in refused:
        assert answer.startswith("429")
        assert re.search(r"^Retry-After: [1-9]\d*\s*$", answer, re.MULTILINE | re.IGNORECASE)
    assert server.end_offset(name) == 3


def test_grpcurl_is_told_when_to_come_again(server: LimitedServer, name: str) -> None:
    grpcurl = obtained("GRPCURL", packages.obtain_grpcurl)
    address = str(server.process.ready["grpc"])
    value = base64.b64encode(values()[0]).decode()
    request = json.dumps({"stream": name, "payload": {"records": {"records": [{"value": value}]}}})

    def produce() -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [grpcurl, "-plaintext", "-d", "@", address, "bearlake.stream.v1.Producer/Produce"]
        return subprocess.run(command, input=request, capture_output=True, text=True, timeout=WAIT_S, check=False)

    with Client(address) as client:
        client.create_stream(name)
    stored_count = 0
    while (ended := produce()).returncode == 0:
        stored_count += 1  # a machine that is busy enough starts the next process too late to be refused
        assert stored_count < 20, "never refused"

    assert "Code: ResourceExhausted" in ended.stderr
    assert "google.rpc.RetryInfo" in ended.stderr
    delay = re.search(r'"(?:retryDelay|retry_delay)": "([\d.]+)s"', ended.stderr)
    assert delay is not None, ended.stderr
    assert server.end_offset(name) == stored_count
    threading.Event().wait(float(delay[1]))
    again = produce()
    assert again.returncode == 0, again.stderr
    assert server.end_offset(name) == stored_count + 1


def test_the_python_client_of_grpc_waits_by_itself(server: LimitedServer, name: str) -> None:
    """A producer's stream is paced; single appends are refused, and the client tries again."""
    with Client(str(server.process.ready["grpc"])) as client:
        client.create_stream(name)
        with server.throttles(WRITES), client.producer() as producer:
            for value in values():
                producer.send(name, value)
            producer.flush()
        with server.throttles(WRITES):
            offsets = [client.append(name, [value]) for value in values()[:2]]
        with server.throttles(READS):
            read = [record.value for record in client.read(name, follow=False)]

    assert offsets == [len(SIZES), len(SIZES) + 1]
    written = [*values(), *values()[:2]]
    assert [value == original for value, original in zip(read, written, strict=True)] == [True] * len(written)


def test_the_python_client_of_grpc_says_why_it_gives_up(server: LimitedServer, name: str) -> None:
    """Its first pause is longer than its time for retries."""
    settings = ClientSettings(call_timeout_s=20, retry_pause_ms=60_000)
    stored_count = 0
    refused: Overloaded | None = None
    with Client(str(server.process.ready["grpc"]), settings=settings) as client:
        client.create_stream(name)
        while refused is None and stored_count < 20:  # a machine that is busy enough comes too late to be refused
            try:
                client.append(name, values()[:1])
                stored_count += 1
            except Overloaded as error:
                refused = error

    assert refused is not None
    assert refused.reason == "THROTTLED"
    assert refused.is_retriable
    assert server.end_offset(name) == stored_count
