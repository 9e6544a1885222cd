"""Transactions of librdkafka, from beginning to end, with what each step shows on a line: BOOTSTRAP TOPIC GROUP (two empty partitions)."""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

TIMEOUT_S = 60.0


def main(bootstrap: str, topic: str, group: str) -> None:
    """Go through all steps."""
    copier = producer(bootstrap)
    send(copier, topic, "a0", "a1")
    show("open", read(bootstrap, topic, "read_committed"))
    copier.commit_transaction(TIMEOUT_S)
    copier.begin_transaction()
    send(copier, topic, "b0", "b1")
    copier.abort_transaction(TIMEOUT_S)
    show("committed", read(bootstrap, topic, "read_committed"))
    show("everything", read(bootstrap, topic, "read_uncommitted"))
    copier.begin_transaction()
    copy(bootstrap, copier, topic, group)
    copier.begin_transaction()
    send(copier, topic, "c0")
    following = producer(bootstrap)
    send(following, topic, "d0")
    show("fenced", [str(is_fenced(copier))])
    following.commit_transaction(TIMEOUT_S)
    show("at the end", read(bootstrap, topic, "read_committed"))


def producer(bootstrap: str) -> Producer:
    """A producer that has begun a transaction."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"librdkafka-{sys.argv[2]}", "linger.ms": 1})
    made.init_transactions(TIMEOUT_S)
    made.begin_transaction()
    return made


def send(copier: Producer, topic: str, *values: str) -> None:
    """Send a value to each partition."""
    for partition, value in enumerate(values):
        copier.produce(topic, value, partition=partition)
    assert copier.flush(TIMEOUT_S) == 0


def copy(bootstrap: str, copier: Producer, topic: str, group: str) -> None:
    """Read two committed records as a member of the group, and write copies in the transaction that has the offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) < 2 and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(text(message))
    for value in sorted(found):
        copier.produce(topic, f"copy of {value}", partition=0)
    copier.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
    )
    copier.commit_transaction(TIMEOUT_S)
    committed = consumer.committed(consumer.assignment(), timeout=TIMEOUT_S)
    show("copied", found)
    show("offsets", [str(item.partition) for item in committed if item.offset > 0])
    consumer.close()


def is_fenced(copier: Producer) -> bool:
    """Whether the commit of a producer fails for good."""
    try:
        copier.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        return bool(error.args[0].fatal())
    return False


def read(bootstrap: str, topic: str, isolation: str) -> list[str]:
    """The values up to the end that the isolation level shows."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    found: list[str] = []
    ended: set[int] = set()
    end = time.monotonic() + TIMEOUT_S
    while len(ended) < 2 and time.monotonic() < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is not None:
            ended.add(message.partition())
        elif message is not None:
            found.append(text(message))
    consumer.close()
    return found


def text(message: Message) -> str:
    """The value of a message."""
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


def show(step: str, values: list[str]) -> None:
    """Print a line."""
    print(f"{step}: {', '.join(sorted(values))}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
