"""kopf watches, and what it is told goes into the world. Nothing else is left to kopf: no annotations, no finalizers, no retries.

Two sets of watches run: Streams and Compactors where users make them, and the operator's own objects in its own namespace, so that it
needs no right to see anybody else's. Source: kopf, "Events" and "Embedding".
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import kopf

from bearlake_operator.handlers.apply import CHILD_KINDS, SELECTOR
from bearlake_operator.handlers.resync import OWN_KINDS, WatchDead
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import KINDS, OPTIONAL_KINDS, Access, Resource

WATCHED_CHILD_KINDS = tuple(kind for kind in CHILD_KINDS if kind not in OPTIONAL_KINDS)
"""Those that every cluster has; listing finds the changes of the others."""


async def run(access: Access, world: World, namespaces: Sequence[str]) -> None:
    """Watch until cancelled. Raises `WatchDead`, and what ended a watch. `namespaces` of Streams and Compactors; none: all."""
    stop = threading.Event()
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end(error: BaseException) -> None:
        """A thread's last word. It may hang after it: kopf waits for tasks that never end when its login was of no use."""

        def settle() -> None:
            if not ended.done():
                ended.set_exception(error)

        if not stop.is_set():
            loop.call_soon_threadsafe(settle)

    def tell(resource: Resource, is_deleted: bool) -> None:
        change = world.remove if is_deleted else world.put
        if stop.is_set():
            return  # the loop may be closed by now
        loop.call_soon_threadsafe(change, resource["kind"], resource)

    def watch(kinds: Sequence[str], where: Sequence[str], selector: str) -> None:
        try:
            asyncio.run(_operator(access, tell, end, kinds, where, selector, stop))
        except BaseException as error:  # noqa: BLE001 - the boundary of a thread: its end is told in the other one
            end(error)
        else:
            end(WatchDead("kopf has stopped watching"))

    try:
        for arguments in ((OWN_KINDS, namespaces, ""), (WATCHED_CHILD_KINDS, [access.namespace], SELECTOR)):
            # Of its own, and a daemon: the loop's executor would wait for it when the process ends.
            threading.Thread(target=watch, args=arguments, daemon=True, name=f"watch {arguments[0][0]}").start()
        await ended
    finally:
        stop.set()


async def _operator(
    access: Access,
    tell: Callable[[Resource, bool], None],
    end: Callable[[BaseException], None],
    kinds: Sequence[str],
    namespaces: Sequence[str],
    selector: str,
    stop: threading.Event,
) -> None:
    """A kopf operator on a loop and a thread of its own: in the main thread it would take the process's signals."""
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.networking.request_timeout = 30
    kopf.on.login(registry=registry)(_login(access))

    async def ending(**_: Any) -> None:
        end(WatchDead("kopf stops watching"))

    kopf.on.cleanup(registry=registry)(ending)
    for kind in kinds:
        _listen(registry, tell, kind)
        if selector:
            settings.watching.label_selectors[_name(kind)] = selector
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )


def _listen(registry: kopf.OperatorRegistry, tell: Callable[[Resource, bool], None], kind: str) -> None:
    group, _, version = KINDS[kind].api_version.rpartition("/")

    async def told(event: Any, **_: Any) -> None:
        resource = {"apiVersion": KINDS[kind].api_version, "kind": kind, **event["object"]}
        tell(resource, event["type"] == "DELETED")

    kopf.on.event(group=group, version=version, plural=KINDS[kind].plural, registry=registry, id=f"told-{kind}")(told)


def _name(kind: str) -> str:
    """A kind as kopf's settings name it: `deployments.apps`, `services`."""
    group = KINDS[kind].api_version.rpartition("/")[0]
    return f"{KINDS[kind].plural}.{group}" if group else KINDS[kind].plural


def _login(access: Access) -> Callable[..., kopf.ConnectionInfo]:
    def login(**_: Any) -> kopf.ConnectionInfo:
        """The same way in as our own requests have; asked again when the API does not take the token any more."""
        certificate, key = access.certificate_files or (None, None)
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.authority_file,
            certificate_path=certificate,
            private_key_path=key,
            token=access.token,
            default_namespace=access.namespace,
        )

    return login
