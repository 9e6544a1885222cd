"""Which event loops the tests of the REST server run on: asyncio's, and for what depends on transports uvloop, as a server does."""

import asyncio

import uvloop

ON_UVLOOP = {
    "test_rest_throttling",  # asyncio's loop of Python 3.11.2 reads connections that were paused when they were made
}


def pytest_asyncio_loop_factories(config, item):
    """Run the tests of `ON_UVLOOP` on uvloop."""
    if item.path.stem in ON_UVLOOP:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
