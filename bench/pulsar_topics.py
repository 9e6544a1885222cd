"""Topics for the Pulsar runs: created, deleted and unloaded through the admin API, on the peer and on Bearlake alike."""

import json
import urllib.error
import urllib.request
from typing import Any

from bench.errors import BenchError

NAMESPACE = "public/default"
TIMEOUT_S = 30


def create(http: str, topic: str) -> None:
    """Create a topic that is not partitioned, and wait until it is served. Raises BenchError if that fails."""
    _call(http, "PUT", _admin(topic))
    served_by(http, topic)  # a look-up makes a broker load the topic


def delete(http: str, topic: str) -> None:
    """Delete `topic` with its subscriptions; its space is freed later (see `prepare_next_run` of the servers)."""
    _call(http, "DELETE", f"{_admin(topic)}?force=true")


def unload(http: str, topic: str) -> None:
    """Make the broker unload `topic`: its clients look it up again."""
    _call(http, "PUT", f"{_admin(topic)}/unload")


def served_by(http: str, topic: str) -> str:
    """URL of the server that serves clients of `topic`. Raises BenchError."""
    found: Any = _call(http, "GET", f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
    return str(found["brokerUrl"])


def is_served(http: str) -> bool:
    """Whether a broker serves the namespace."""
    try:
        return NAMESPACE in (_call(http, "GET", "/admin/v2/namespaces/public") or ())
    except BenchError:
        return False


def _admin(topic: str) -> str:
    return f"/admin/v2/persistent/{NAMESPACE}/{topic}"


def _call(http: str, method: str, path: str) -> Any:  # JSON
    request = urllib.request.Request(http + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise BenchError(f"{method} {path}: {error.code} {error.read().decode(errors='replace')[:200]}") from error
    except OSError as error:
        raise BenchError(f"{method} {path}: {error}") from error
