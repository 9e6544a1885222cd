"""kopf watches that put every change into the cache. kopf does nothing else here: no annotations, no finalizers, no retries.

Two sets of watches run: one for Streams and Compactors in the watched namespaces, one for the operator's own objects in its own
namespace. So the operator needs no right to read objects of other namespaces. Source: kopf, "Events" and "Embedding".
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import kopf
from typing_extensions import override

from bearlake_operator.controllers.apply import CHILD_KINDS, SELECTOR
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.resync import CUSTOM_KINDS, WatchFailed
from bearlake_operator.kube import KINDS, OPTIONAL_KINDS, Resource
from bearlake_operator.kube_config import ClientConfig

WATCHED_CHILD_KINDS = tuple(kind for kind in CHILD_KINDS if kind not in OPTIONAL_KINDS)
"""Kinds that every cluster has. Changes of the other kinds are found by listing."""


async def run(config: ClientConfig, cache: ResourceCache, namespaces: Sequence[str]) -> None:
    """Watch until cancelled. `namespaces`: where to watch Streams and Compactors; empty means all.

    Raises `WatchFailed`, and any exception that ended a watch.
    """
    stop = threading.Event()
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def report_end(error: BaseException) -> None:
        """Report the end of a thread from within it. The thread may hang afterwards: kopf waits forever if its login was refused."""

        def set_ended() -> None:
            if not ended.done():
                ended.set_exception(error)

        if not stop.is_set():
            loop.call_soon_threadsafe(set_ended)

    def update_cache(resource: Resource, is_deleted: bool) -> None:
        change = cache.remove if is_deleted else cache.put
        if stop.is_set():
            return  # the loop may be closed by now
        loop.call_soon_threadsafe(change, resource["kind"], resource)

    def watch(kinds: Sequence[str], watched_namespaces: Sequence[str], selector: str) -> None:
        try:
            asyncio.run(_run_kopf(config, update_cache, report_end, kinds, watched_namespaces, selector, stop))
        except BaseException as error:  # noqa: BLE001 - the boundary of a thread: the error is raised in the main thread
            report_end(error)
        else:
            report_end(WatchFailed("kopf has stopped watching"))

    try:
        for arguments in ((CUSTOM_KINDS, namespaces, ""), (WATCHED_CHILD_KINDS, [config.namespace], SELECTOR)):
            # A daemon thread rather than the loop's executor, which would wait for the thread when the process exits.
            threading.Thread(target=watch, args=arguments, daemon=True, name=f"watch {arguments[0][0]}").start()
        await ended
    finally:
        stop.set()


async def _run_kopf(
    config: ClientConfig,
    update_cache: Callable[[Resource, bool], None],
    report_end: Callable[[BaseException], None],
    kinds: Sequence[str],
    namespaces: Sequence[str],
    selector: str,
    stop: threading.Event,
) -> None:
    """Run a kopf operator in the current thread. In the main thread, kopf would handle the process's signals."""
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.networking.request_timeout = 30
    kopf.on.login(registry=registry)(_login(config))

    async def on_cleanup(**_: Any) -> None:
        report_end(WatchFailed("kopf stops watching"))

    kopf.on.cleanup(registry=registry)(on_cleanup)
    for kind in kinds:
        _register(registry, update_cache, kind)
        if selector:
            settings.watching.label_selectors[_kopf_name(kind)] = selector
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )


def _register(registry: kopf.OperatorRegistry, update_cache: Callable[[Resource, bool], None], kind: str) -> None:
    group, _, version = KINDS[kind].api_version.rpartition("/")

    async def on_event(event: Any, **_: Any) -> None:
        resource = {"apiVersion": KINDS[kind].api_version, "kind": kind, **event["object"]}
        update_cache(resource, event["type"] == "DELETED")

    decorate = kopf.on.event(
        group=group, version=version, plural=KINDS[kind].plural, registry=registry, id=f"cache-{kind}"
    )
    decorate(on_event)


def _kopf_name(kind: str) -> str:
    """The name of a kind in kopf's settings: `deployments.apps`, `services`."""
    group = KINDS[kind].api_version.rpartition("/")[0]
    return f"{KINDS[kind].plural}.{group}" if group else KINDS[kind].plural


@dataclass(frozen=True, kw_only=True)
class Connection(kopf.ConnectionInfo):
    """A connection of kopf with the TLS context of our own client: they verify the API server alike."""

    config: ClientConfig

    @override
    def as_ssl_context(self) -> ssl.SSLContext:
        return self.config.tls_context()


def _login(config: ClientConfig) -> Callable[..., kopf.ConnectionInfo]:
    def login(**_: Any) -> kopf.ConnectionInfo:
        """The credentials of our own client. kopf calls this again when the API server rejects the token."""
        return Connection(config=config, server=config.server, token=config.token, default_namespace=config.namespace)

    return login
