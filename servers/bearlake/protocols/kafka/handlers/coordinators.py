"""FindCoordinator: the servers of groups and transactional ids.

The answer is a hint. The server that the client goes to has the group's lease, or takes it, or refuses the request, and the client asks
again. So a moment without the metadata store is no error: some clients ask only a few times and then wait for ever (decision 330).
However many groups a request names, the store is asked one question, with one time limit (decision 331).

Source: Kafka protocol guide; KIP-699 (several keys), KIP-932 (key type 2, which only brokers use).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from bearlake.errors import BearlakeError, Overloaded, Unavailable
from bearlake.metadata.model import Server, ServerRef
from bearlake.protocols.kafka import apis
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers import metadata
from bearlake.protocols.kafka.handlers.group_membership import may_describe
from bearlake.protocols.kafka.messages import FindCoordinatorRequest, FindCoordinatorResponse
from bearlake.protocols.kafka.rights import on_transaction
from bearlake.serving import routing
from bearlake.serving.live_servers import own_server, seen_lately
from bearlake.streams.principal import Operation
from bearlake.streams.tenure import CONFIRM_MS
from bearlake.streams.turns import Turns

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
LOOK_UP_MS = CONFIRM_MS
"""Longest time (ms) for which one request waits for the metadata store. No coordinator can confirm its groups on a store that is slower."""
_MANY_KEYS_FROM = 4
_LEASES_AT_ONCE = 1_000

Found = FindCoordinatorResponse.Coordinator


async def find_coordinator(
    context: KafkaContext, caller: Caller, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """The server that holds the group's lease, else the server that should take it (rendezvous hashing)."""
    keys = request.coordinator_keys if caller.version >= _MANY_KEYS_FROM else [request.key]
    found = await _find(context, caller, dict.fromkeys(keys), request.key_type)
    if caller.version >= _MANY_KEYS_FROM:
        return FindCoordinatorResponse(coordinators=[found[key] for key in keys])
    only = found[request.key]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(context: KafkaContext, caller: Caller, keys: Iterable[str], key_type: int) -> dict[str, Found]:
    answers: dict[str, Found] = {}
    groups: list[str] = []
    turns = Turns()
    for key in keys:
        if turns.is_over():
            await asyncio.sleep(0)
        if key_type == KEY_TYPE_TRANSACTION and apis.SERVES_TRANSACTIONS:
            answers[key] = _find_for_transaction(context, caller, key)
        elif key_type != KEY_TYPE_GROUP:
            # The code must not be retriable: transactional clients would retry for a minute.
            message = f"coordinator type {key_type}: only groups (0) have coordinators"
            answers[key] = _refused(key, ErrorCode.INVALID_REQUEST, message)
        elif not may_describe(context, caller, key):
            answers[key] = _refused(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        else:
            groups.append(key)
    if groups:
        answers |= await _find_for_groups(context, caller, groups)
    return answers


async def _find_for_groups(context: KafkaContext, caller: Caller, groups: Sequence[str]) -> dict[str, Found]:
    try:
        servers = await coordinators_of(context, caller, groups)
    except BearlakeError as error:
        return {group: _refused(group, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) for group in groups}
    return {group: _found(group, server, caller) for group, server in servers.items()}


def _find_for_transaction(context: KafkaContext, caller: Caller, key: str) -> Found:
    """Any server serves any transactional id (decision 130); the choice only spreads the work."""
    if not on_transaction(context, caller, Operation.DESCRIBE, key):
        return _refused(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    servers = _alive(context, caller)
    if not servers:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _found(key, routing.choose(routing.key_of(f"transaction/{key}"), servers), caller)


def _found(key: str, server: Server, caller: Caller) -> Found:
    host, port = metadata.address(server, caller.listener)
    return Found(key=key, node_id=server.ref.node_id, host=host, port=port, error_message=None)


def _refused(key: str, code: ErrorCode, message: str | None = None) -> Found:
    return Found(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


# -- groups --------------------------------------------------------------------------------------------------------


async def coordinators_of(context: KafkaContext, caller: Caller, groups: Sequence[str]) -> dict[str, Server]:
    """The live server that coordinates each group, or that should. A draining server counts until it gives the group up.

    While the store is away, busy or slow, this is this server for groups whose lease is not known: the client has reached it, and it
    corrects or refuses the client's next request. Raises `BearlakeError` for other failures of the store.
    """
    holders: dict[str, ServerRef] = {}
    is_known = True
    try:
        async with asyncio.timeout(LOOK_UP_MS / 1000):
            for start in range(0, len(groups), _LEASES_AT_ONCE):
                holders |= await context.groups.holders(groups[start : start + _LEASES_AT_ONCE])
            if await _is_view_old(context, caller, groups, holders):
                await context.servers.refresh()
    except (Unavailable, Overloaded, TimeoutError):
        is_known = False
    reachable = _reachable(context, caller)
    found: dict[str, Server] = {}
    turns = Turns()
    for group in groups:
        if turns.is_over():
            await asyncio.sleep(0)
        server = reachable.get(holders[group]) if group in holders else None
        choose = coordinator_for if is_known else _stand_in
        found[group] = server or choose(context, caller, group)
    return found


async def _is_view_old(
    context: KafkaContext, caller: Caller, groups: Sequence[str], holders: Mapping[str, ServerRef]
) -> bool:
    """Whether an answer depends on news: a holder that has just joined, or another server that may have started to drain."""
    reachable = _reachable(context, caller)
    turns = Turns()
    for group in groups:
        if turns.is_over():
            await asyncio.sleep(0)
        if group in holders:
            is_old = holders[group] not in reachable
        else:
            is_old = coordinator_for(context, caller, group).ref.node_id != context.node_id
        if is_old:
            return True
    return False


def _reachable(context: KafkaContext, caller: Caller) -> dict[ServerRef, Server]:
    return {server.ref: server for server in context.servers.live() if caller.listener in server.endpoints}


def coordinator_for(context: KafkaContext, caller: Caller, group: str) -> Server:
    """The server that should coordinate the group if it has no coordinator."""
    return routing.choose(routing.key_of(group), metadata.all_of(context, caller))


def _stand_in(context: KafkaContext, caller: Caller, group: str) -> Server:
    """The server to name while the store does not answer: this server, or while it drains another one that was alive lately."""
    own = own_server(context.servers)
    if own is not None and not own.is_draining and caller.listener in own.endpoints:
        return own
    return routing.choose(routing.key_of(group), _alive(context, caller))


def _alive(context: KafkaContext, caller: Caller) -> list[Server]:
    """The servers for this client, without those that may have died since the store answered last; if that leaves none, all of them."""
    servers = metadata.all_of(context, caller)
    return seen_lately(context.servers, servers) or servers
