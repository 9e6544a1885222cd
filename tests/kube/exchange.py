"""Runs in a pod: a client of each protocol writes records to a stream, and reads the records of all.

    exchange.py STREAM kafka=HOST:PORT pulsar=pulsar://HOST:PORT rest=http://HOST:PORT grpc=HOST:PORT

Prints the values that each protocol has read as JSON. It uses partition 0 only, and fails after a timeout.
"""

import base64
import json
import queue
import sys
import time

import confluent_kafka
import grpc
import pulsar
import requests
from bearlake.stream.v1 import stream_pb2, stream_pb2_grpc

COUNT = 10
TIMEOUT_S = 60
JSON = "application/vnd.kafka.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"


def main():
    """Run the command."""
    stream, *words = sys.argv[1:]
    addresses = dict(word.split("=", 1) for word in words)
    for protocol, address in addresses.items():
        WRITERS[protocol](address, stream, [f"{protocol}-{number}" for number in range(COUNT)])
    wanted = COUNT * len(addresses)
    print(json.dumps({name: READERS[name](address, stream, wanted) for name, address in addresses.items()}))


def write_kafka(address, stream, values):
    """Write the values to partition 0, in order; return when all are acknowledged."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for value in values:
        producer.produce(stream, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def read_kafka(address, stream, wanted):
    """Return the first `wanted` values of partition 0."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "inside", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(stream, 0, 0)])
    values, end = [], time.monotonic() + TIMEOUT_S
    while len(values) < wanted and time.monotonic() < end:
        for message in consumer.consume(100, 1):
            assert message.error() is None, message.error()
            values.append(message.value().decode())
    consumer.close()
    return values


def write_pulsar(address, stream, values):
    """Write the values to partition 0, in order; return when all are acknowledged."""
    client = pulsar.Client(address, operation_timeout_seconds=TIMEOUT_S)
    producer = client.create_producer(f"{stream}-partition-0")
    for value in values:
        producer.send(value.encode())
    client.close()


def read_pulsar(address, stream, wanted):
    """Return the first `wanted` values of partition 0."""
    client = pulsar.Client(address, operation_timeout_seconds=TIMEOUT_S)
    reader = client.create_reader(f"{stream}-partition-0", pulsar.MessageId.earliest)
    values = [reader.read_next(TIMEOUT_S * 1000).data().decode() for _ in range(wanted)]
    client.close()
    return values


def write_rest(address, stream, values):
    """Write the values to partition 0, in order; return when all are acknowledged."""
    records = [{"value": base64.b64encode(value.encode()).decode(), "partition": 0} for value in values]
    body = json.dumps({"records": records})
    answer = requests.post(f"{address}/topics/{stream}", data=body, headers={"Content-Type": BINARY}, timeout=TIMEOUT_S)
    answer.raise_for_status()
    assert all(result["error"] is None for result in answer.json()["offsets"]), answer.text


def read_rest(address, stream, wanted):
    """Return the first `wanted` values of partition 0."""
    settings = json.dumps({"format": "binary", "auto.offset.reset": "earliest"})
    made = requests.post(
        f"{address}/consumers/inside-rest", data=settings, headers={"Content-Type": JSON}, timeout=TIMEOUT_S
    )
    made.raise_for_status()
    base = made.json()["base_uri"]
    body = json.dumps({"partitions": [{"topic": stream, "partition": 0}]})
    requests.post(
        f"{base}/assignments", data=body, headers={"Content-Type": JSON}, timeout=TIMEOUT_S
    ).raise_for_status()
    body = json.dumps({"partitions": [{"topic": stream, "partition": 0}]})
    first = f"{base}/positions/beginning"
    requests.post(first, data=body, headers={"Content-Type": JSON}, timeout=TIMEOUT_S).raise_for_status()
    values, end = [], time.monotonic() + TIMEOUT_S
    while len(values) < wanted and time.monotonic() < end:
        found = requests.get(f"{base}/records?timeout=1000", headers={"Accept": BINARY}, timeout=TIMEOUT_S)
        found.raise_for_status()
        values += [base64.b64decode(record["value"]).decode() for record in found.json()]
    requests.delete(base, headers={"Content-Type": JSON}, timeout=TIMEOUT_S)
    return values


def write_grpc(address, stream, values):
    """Write the values to partition 0, in order; return when all are acknowledged."""
    with grpc.insecure_channel(address) as channel:
        stub = stream_pb2_grpc.ProducerStub(channel)
        records = stream_pb2.Records(records=[stream_pb2.Record(value=value.encode()) for value in values])
        payload = stream_pb2.Payload(records=records)
        stub.Produce(stream_pb2.ProduceRequest(stream=stream, partition=0, payload=payload), timeout=TIMEOUT_S)


def read_grpc(address, stream, wanted):
    """Return the first `wanted` values of partition 0."""
    credit = stream_pb2.Credit(bytes=1 << 30, messages=1 << 20)
    place = stream_pb2.Position(stream=stream, partition=0, offset=0)
    values, asking = [], queue.SimpleQueue()
    asking.put(stream_pb2.FetchRequest(assign=[place], credit=credit))
    with grpc.insecure_channel(address) as channel:
        call = stream_pb2_grpc.ConsumerStub(channel).Fetch(iter(asking.get, None), timeout=TIMEOUT_S)
        for answer in call:
            values += [record.value.decode() for record in answer.payload.records.records]
            if len(values) >= wanted:
                break
        asking.put(None)
    return values


WRITERS = {"kafka": write_kafka, "pulsar": write_pulsar, "rest": write_rest, "grpc": write_grpc}
READERS = {"kafka": read_kafka, "pulsar": read_pulsar, "rest": read_rest, "grpc": read_grpc}

if __name__ == "__main__":
    main()
