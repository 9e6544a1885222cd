"""JSON resources of the v3 API: each has its kind, URL and resource name; a list contains its items."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from aiohttp import web

from bearlake.errors import NotFound
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import JSON_TYPE, Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.login import principal_of
from bearlake.serving.http.models import Reader
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.service import Streams

CLUSTERS = "/v3/clusters"
CLUSTER = "/v3/clusters/{cluster_id}"

T = TypeVar("T")


class Site:
    """Builds resources of this cluster, with URLs as the client sees this server."""

    def __init__(self, request: web.Request, servers: LiveServers) -> None:
        """Raise `Problem` (404) if the path names another cluster."""
        self.cluster_id = servers.cluster_id
        cluster_id = request.match_info.get("cluster_id")
        if cluster_id is not None and cluster_id != self.cluster_id:
            raise Problem(404, 404, f"Cluster {cluster_id[:100]} cannot be found: this is {self.cluster_id}")
        self._root = f"{request.scheme}://{request.host}{CLUSTERS}/{self.cluster_id}"

    def url(self, path: str) -> str:
        """Return the URL of `path` (with a leading slash; empty: the cluster)."""
        return self._root + path

    def related(self, path: str) -> dict[str, str]:
        """Build a link to a related resource."""
        return {"related": self.url(path)}

    def resource(self, kind: str, path: str, name: str, fields: Mapping[str, object]) -> dict[str, object]:
        """Build a resource; `name` is its resource name without the cluster's."""
        metadata = {"self": self.url(path), "resource_name": f"crn:///kafka={self.cluster_id}{name}"}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def listing(self, kind: str, path: str, items: Sequence[object]) -> dict[str, object]:
        """Build a complete list of resources."""
        return {"kind": kind, "metadata": {"self": self.url(path), "next": None}, "data": items}


def answer(value: object, status: int = 200) -> web.Response:
    """Build a JSON answer."""
    return web.Response(status=status, body=json.dumps(value).encode(), content_type=JSON_TYPE)


def items(resources: Iterable[object]) -> bytes:
    """Encode resources for `long_answer`."""
    return ", ".join([json.dumps(resource) for resource in resources]).encode()


def long_answer(listing: Mapping[str, object], parts: Sequence[bytes]) -> web.Response:
    """Build the answer of an empty list with the items of these parts (`items`)."""
    empty = json.dumps(listing).encode()
    assert empty.endswith(b"[]}"), "data comes last"
    body = b"".join([empty[:-2], b", ".join(filter(None, parts)), empty[-2:]])
    return web.Response(body=body, content_type=JSON_TYPE)


async def find(streams: Streams, request: web.Request, operation: Operation) -> StreamView:
    """Return the path's stream. Raises `Problem` (404, 40403) if the stream does not exist or the caller may not see it."""
    return await find_named(streams, principal_of(request), operation, request.match_info["topic"])


async def find_named(streams: Streams, who: Principal, operation: Operation, name: str) -> StreamView:
    """Return the stream that a body names. Raises as `find`."""
    try:
        view = await streams.catalog.find(name)
    except NotFound as error:
        raise unknown_topic(name) from error
    if not streams.may(who, operation, name):
        raise unknown_topic(name)
    return view


def unknown_topic(name: str) -> Problem:
    """Error 40403."""
    return Problem(404, 40403, f"This server does not host this topic-partition: there is no topic {name[:249]}")


def index_of(request: web.Request, view: StreamView) -> int:
    """Return the path's partition index. Raises `Problem` (404)."""
    text = request.match_info["partition"]
    if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) < view.partition_count):
        last = view.partition_count - 1
        raise Problem(404, 404, f"Partition {text[:20]} of topic {view.name} cannot be found: they are 0 to {last}")
    return int(text)


async def body(request: web.Request, reader: Reader[T], limits: RestSettings) -> T:
    """Parse the body. Raises `Problem` (400, 415), `TooLarge`."""
    octets = await bodies.read(request, limits.request_bytes_max)
    return await bodies.parse_optional(reader, octets, limits.request_value_count_max, status=400, code=400)
