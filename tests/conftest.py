"""Fixtures for tests of all folders."""

import gc
import signal
import time

import pytest
from hypothesis import HealthCheck, settings

from fixtures.run_order import in_parts, is_too_late

# A shell starts background processes with interrupts ignored, and children inherit this: tests of Ctrl-C would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis would fail a test whose example takes 200 ms of wall-clock time, which happens on a busy machine.
settings.register_profile("any speed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

BEGAN_S = time.monotonic()

pytest_plugins = [
    "fixtures.backed_up",
    "fixtures.certificates",
    "fixtures.chart",
    "fixtures.iceberg_rest",
    "fixtures.kafka_server",
    "fixtures.logins",
    "fixtures.grpc_server",
    "fixtures.postgresql",
    "fixtures.postgresql_metadata",
    "fixtures.postgresql_pair",
    "fixtures.pulsar_server",
    "fixtures.pulsar_http",
    "fixtures.pulsar_source",
    "fixtures.rest_server",
    "fixtures.s3",
    "fixtures.schema_registry",
]

# Twenty thousand collected tests are 800,000 objects, which each full garbage collection looks at: two fifths of a run's time.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests of a run in several processes (`fixtures/run_order.py`)."""
    worker = getattr(config, "workerinput", None)  # a process of xdist has it
    if worker is not None:
        items[:] = in_parts(items, worker["workercount"])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out long tests that would begin too late (`fixtures/run_order.py`)."""
    if is_too_late(item, time.monotonic() - BEGAN_S):
        pytest.skip("LONG TESTS NOT RUN: too late (BEARLAKE_LONG_TESTS_S). Run them with: make test ARGS='-m long'")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what was collected out of later garbage collections."""
    gc.collect()
    gc.freeze()
    gc.enable()
