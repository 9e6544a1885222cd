"""The one door to a Kafka client library: confluent-kafka (librdkafka), which comes with the extra `client`."""

import logging
from types import ModuleType
from typing import Any

from bearlake.errors import Invalid

log = logging.getLogger(__name__)


def library() -> ModuleType:
    """The module `confluent_kafka`. Raises `Invalid` when it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise Invalid("this command needs a Kafka client: pip install 'bearlake[client]'") from error
    return confluent_kafka


def common(bootstrap: str, **more: object) -> dict[str, Any]:
    """Settings that all our clients share: librdkafka's own log goes to ours, errors that it retries stay quiet."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "bearlake",
        "logger": log,
        "log.connection.close": False,
        **more,
    }
