"""A producer and a Shared consumer of one topic, by pulsar-client: `move.py URL TOPIC BEFORE_S AFTER_S`. See ../pulsar_moves.py.

Sends a message each millisecond. Prints "steady" after BEFORE_S seconds and continues for AFTER_S seconds, in which its producer and
consumer are moved. Then prints one line of JSON with what it observed.
"""

import json
import sys
import threading
import time
from itertools import pairwise
from typing import Any

import pulsar

PAUSE_S = 0.001
TIMEOUT_S = 30
WARM_S = 0.5
"""Initial part of the time before the move that does not count, because connections are opened."""


class Watched:
    """Arrival times, and how often each number arrived."""

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self.counts: dict[int, int] = {}

    def saw(self, number: int) -> None:
        """Record the time and count of message `number`."""
        self.at_s.append(time.monotonic())
        self.counts[number] = self.counts.get(number, 0) + 1

    def gap_ms(self, start_s: float, end_s: float) -> float:
        """The longest time between two arrivals."""
        times = [start_s, *(at for at in self.at_s if start_s <= at <= end_s)]
        return max((after - before for before, after in pairwise(times)), default=end_s - start_s) * 1000


def main() -> None:
    """Run the command."""
    url, topic, before_s, after_s = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, f"{topic}.log"))
    receipts, messages, failures = Watched(), Watched(), list[str]()

    def received(consumer: Any, message: Any) -> None:
        messages.saw(int(message.data()))
        consumer.acknowledge(message)

    client.subscribe(topic, "moved", consumer_type=pulsar.ConsumerType.Shared, message_listener=received)
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True, send_timeout_millis=0)
    pause = threading.Event()
    start_s = time.monotonic()
    moved_s, end_s = start_s + before_s, start_s + before_s + after_s
    sent = 0
    is_steady = False
    while (now := time.monotonic()) < end_s:
        if now >= moved_s and not is_steady:
            is_steady = True
            print("steady", flush=True)
        if now < start_s + sent * PAUSE_S:
            pause.wait(start_s + sent * PAUSE_S - now)
            continue

        def receipt(result: Any, message_id: Any, number: int = sent) -> None:
            receipts.saw(number) if result == pulsar.Result.Ok else failures.append(str(result))

        producer.send_async(b"%d" % sent, receipt)
        sent += 1
    producer.flush()
    for _ in range(TIMEOUT_S * 100):
        if len(messages.counts) == sent and len(receipts.counts) == sent:
            break
        pause.wait(0.01)
    client.close()
    found = {
        "sent": sent,
        "failures": failures,
        "lost": sent - len(messages.counts),
        "duplicates": sum(count - 1 for count in messages.counts.values()),
        "receipt_gap_ms": receipts.gap_ms(moved_s, end_s),
        "message_gap_ms": messages.gap_ms(moved_s, end_s),
        "receipt_gap_before_ms": receipts.gap_ms(start_s + WARM_S, moved_s),
        "message_gap_before_ms": messages.gap_ms(start_s + WARM_S, moved_s),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
