"""Which event loops the tests of the Kafka server run on.

Servers run on uvloop, whose transports read and write in another way than asyncio's, so what depends on transports runs on both.
"""

import asyncio

import uvloop

BOTH = {
    "test_kafka_hostile",
    "test_kafka_produce",
    "test_kafka_fetch",
    "test_kafka_listeners",
    "test_kafka_handshakes",
    "test_kafka_login",
}


def pytest_asyncio_loop_factories(config, item):
    """Run each test on uvloop, and those of `BOTH` also on asyncio's loop."""
    factories = {"uvloop": uvloop.new_event_loop}
    if item.path.stem in BOTH:
        factories["asyncio"] = asyncio.new_event_loop
    return factories
