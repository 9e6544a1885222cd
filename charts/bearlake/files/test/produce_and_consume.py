"""The program of `helm test`, run in a pod of the server's image: writes records to a stream and reads them back through one protocol.

    produce_and_consume.py PROTOCOL HOST:PORT STREAM SECONDS

PROTOCOL is `kafka` or `rest`. If the variables TEST_USER and TEST_PASSWORD are set, it logs in, by SCRAM-SHA-512 or HTTP Basic. It waits
until the stream is served, for at most SECONDS in total. The exit code is 0 only if all records were read back, each once and in order;
otherwise the last line of the output says what was missing.
"""

import base64
import json
import os
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

RECORD_COUNT = 100
REQUEST_S = 10.0
USER, PASSWORD = os.environ.get("TEST_USER", ""), os.environ.get("TEST_PASSWORD", "")


class Unserved(Exception):
    """The stream was not served in time; the message is the last observation."""


def through_kafka(address: str, stream: str, values: list[bytes], deadline: float) -> list[bytes]:
    """Write with an idempotent producer and read with a consumer; returns the values that were read."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    common = {"bootstrap.servers": address, "client.id": "helm-test", "log_level": 2}
    if USER:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
        common |= {**login, "sasl.username": USER, "sasl.password": PASSWORD}
    producer = Producer({**common, "enable.idempotence": True, "message.timeout.ms": 60_000})

    def is_served() -> str:
        try:
            known = producer.list_topics(timeout=REQUEST_S).topics
        except KafkaException as error:
            return str(error.args[0].str())
        return "" if stream in known else f"the topic {stream} does not exist yet"

    wait(is_served, deadline)
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error.str())

    for value in values:
        producer.produce(stream, value, partition=0, on_delivery=delivered)
    if producer.flush(max(1.0, deadline - time.monotonic())) or failures:
        raise Unserved(f"records were not acknowledged: {failures[0] if failures else 'no answer'}")

    consumer = Consumer({**common, "group.id": "helm-test", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(stream, 0), timeout=REQUEST_S)
    consumer.assign([TopicPartition(stream, 0, end - len(values))])
    found: list[bytes] = []
    while len(found) < len(values) and time.monotonic() < deadline:
        for message in consumer.consume(len(values), timeout=1):
            if message.error() is not None:
                raise Unserved(f"records were not read: {message.error().str()}")
            found.append(message.value())
    consumer.close()
    return found


def through_rest(address: str, stream: str, values: list[bytes], deadline: float) -> list[bytes]:
    """Write and read with HTTP requests; returns the values that were read."""
    url = f"http://{address}/v1/stream/{stream}"
    start = ""

    def is_served() -> str:
        nonlocal start
        try:
            _, start = ask("HEAD", url)
        except OSError as error:  # no DNS name, no listener or no stream yet
            return str(error)
        return ""

    wait(is_served, deadline)
    records = [{"value": base64.b64encode(value + b"\n").decode()} for value in values]
    answer, _ = ask("POST", f"http://{address}/topics/{stream}", json.dumps({"records": records}).encode())
    errors = [offset["error"] for offset in json.loads(answer)["offsets"] if offset["error"] is not None]
    if errors:
        raise Unserved(f"records were not acknowledged: {errors[0]}")
    content, next_offset = b"", start
    while content.count(b"\n") < len(values) and time.monotonic() < deadline:
        part, next_offset = ask("GET", f"{url}?offset={next_offset}")
        content += part
    return content.splitlines()


def ask(method: str, url: str, body: bytes | None = None) -> tuple[bytes, str]:
    """The response's body, and its next offset. Raises `OSError`."""
    headers = {"Content-Type": "application/vnd.kafka.binary.v2+json"} if body is not None else {}
    if USER:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
        return answer.read(), answer.headers.get("Stream-Next-Offset", "")


def wait(is_served: Callable[[], str], deadline: float) -> None:
    """Wait until `is_served` returns no reason. Raises `Unserved` at the deadline."""
    shown = ""
    while reason := is_served():
        if time.monotonic() > deadline:
            raise Unserved(f"the stream is not served: {reason}")
        if reason != shown:
            print(f"waiting: {reason}", flush=True)
            shown = reason
        time.sleep(1)


PROTOCOLS = {"kafka": through_kafka, "rest": through_rest}


def main() -> int:
    """Run the check; returns the status of the process."""
    protocol, address, stream, seconds = sys.argv[1:]
    values = [b"%s %d" % (uuid.uuid4().hex.encode(), number) for number in range(RECORD_COUNT)]
    started = time.monotonic()
    try:
        found = PROTOCOLS[protocol](address, stream, values, started + float(seconds))
    except (Unserved, OSError) as error:
        print(
            f"FAILED: {error}",
            f"See: kubectl describe stream {stream}; kubectl get pods -A -l app.kubernetes.io/name=bearlake",
            sep="\n",
        )
        return 1
    if found != values:
        print(
            f"FAILED: wrote {len(values)} records and read {len(found)}, {len(set(found) & set(values))} of them as written"
        )
        return 1
    print(
        f"{len(values)} records were written to {stream} and read back through {protocol}, {time.monotonic() - started:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
