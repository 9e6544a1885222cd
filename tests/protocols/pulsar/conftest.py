"""The Pulsar server runs on uvloop, whose transports read and write in another way than asyncio's; some tests run on both."""

import asyncio

import uvloop

BOTH = {"test_pulsar_connection", "test_pulsar_hostile"}


def pytest_asyncio_loop_factories(config, item):
    """Run each test on uvloop, and those of `BOTH` also on asyncio's loop."""
    factories = {"uvloop": uvloop.new_event_loop}
    if item.path.stem in BOTH:
        factories["asyncio"] = asyncio.new_event_loop
    return factories
