"""An idempotent librdkafka producer: `librdkafka_steps.py BOOTSTRAP TOPIC`.

Each line of standard input is a burst of values; each value is sent in its own batch, without waiting. Each outcome is a line: VALUE
OFFSET, or VALUE error NAME. A fatal error of the producer is the line `fatal NAME`.
"""

import sys
import time

import confluent_kafka


def main(bootstrap: str, topic: str) -> None:
    """Produce step by step, as the lines of standard input say."""
    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 0,
        "batch.num.messages": 1,
        "message.timeout.ms": 40_000,
        "error_cb": lambda error: print("fatal", error.name(), flush=True) if error.fatal() else None,
    }
    producer = confluent_kafka.Producer(settings)
    producer.list_topics(topic, timeout=120)
    time.sleep(0.5)  # until the client has its producer id
    print("ready", flush=True)
    for line in sys.stdin:
        for value in line.split():
            producer.produce(topic, value.encode(), partition=0, on_delivery=report)
            producer.poll(0.04)
        while len(producer):
            producer.poll(0.1)


def report(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
    """Print the value and its offset, or the error."""
    value = message.value()
    assert isinstance(value, bytes)
    print(value.decode(), message.offset() if error is None else f"error {error.name()}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
