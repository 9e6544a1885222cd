"""The only module that imports a Kafka client library: confluent-kafka (librdkafka), which the extra `client` installs."""

import logging
import sys
from types import ModuleType
from typing import Any

from bearlake.errors import Invalid

log = logging.getLogger(__name__)


def library() -> ModuleType:
    """Return the module `confluent_kafka`. Raises `Invalid` if it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise Invalid("this command needs a Kafka client: pip install 'bearlake[client]'") from error
    return confluent_kafka


def common(bootstrap: str, **more: object) -> dict[str, Any]:
    """Return the settings that all our clients share, plus `more`. librdkafka's own log is shown only with its setting `debug`."""
    if "debug" in more:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    else:
        log.addHandler(logging.NullHandler())
        log.propagate = False
    return {"bootstrap.servers": bootstrap, "client.id": "bearlake", "logger": log, **more}
