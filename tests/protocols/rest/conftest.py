"""Which event loops the tests of the REST server run on: asyncio's, and for what depends on transports also uvloop, as a server does."""

import asyncio

import uvloop

BOTH = {"test_rest_throttling"}


def pytest_asyncio_loop_factories(config, item):
    """Run the tests of `BOTH` also on uvloop."""
    factories = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in BOTH:
        factories["uvloop"] = uvloop.new_event_loop
    return factories
