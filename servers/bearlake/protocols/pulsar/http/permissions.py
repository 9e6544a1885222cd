"""Permissions of namespaces and topics, as access rules (`streams/access`), which apply to all protocols.

A permission is a rule that allows `User:<role>`, from every host:

| Pulsar | rule |
|---|---|
| `produce`, `consume` | Write, Read |
| of a topic | literal: the topic's stream |
| of a namespace | prefixed: how the names of its streams begin; public/default has no such prefix |

A request replaces all permissions that a role has on the namespace or the topic, in one step. These routes neither show nor change any
other rule: rules that deny, of groups, of hosts, for other operations, or with other patterns.

As in Kafka's protocol, changes need ALTER on the cluster by a rule or a super user, and lists need DESCRIBE.

Source: Pulsar, "Admin REST API", permissions; `NamespacesBase`, `PersistentTopicsBase` (a grant replaces, codes).
"""

from collections.abc import Mapping
from typing import NamedTuple

from aiohttp import web

from bearlake.errors import Denied
from bearlake.metadata.access_rules import (
    EVERYONE,
    WILDCARD,
    AccessRule,
    Operation,
    PatternKind,
    Permission,
    Resource,
    RuleFilter,
)
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.problems import Problem, not_served
from bearlake.serving.http.login import principal_of

OPERATIONS: Mapping[str, Operation] = {"produce": Operation.WRITE, "consume": Operation.READ}
"""The rules' operations by Pulsar's actions."""

UNSUPPORTED = ("functions", "sources", "sinks", "packages")
"""Pulsar's actions on what this server does not have."""

_ACTIONS = {operation: action for action, operation in OPERATIONS.items()}
_USER = "User:"


class Pattern(NamedTuple):
    """What the rules of a namespace or a topic match."""

    name: str
    kind: PatternKind

    def rule(self, role: str, operation: Operation) -> AccessRule:
        """The rule of one permission."""
        return AccessRule(Resource.STREAM, self.name, self.kind, _USER + role, WILDCARD, operation, Permission.ALLOW)

    def rules(self, role: str) -> list[AccessRule]:
        """The rules of all permissions of a role."""
        return [self.rule(role, operation) for operation in OPERATIONS.values()]


class PermissionRoutes:
    """Routes of permissions."""

    def __init__(self, context: PulsarContext) -> None:
        self._rules = context.streams.access
        self._streams = context.streams

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        namespace = "/admin/v2/namespaces/{tenant}/{namespace}/permissions"
        router.add_get(namespace, self._of_namespace)
        router.add_post(f"{namespace}/{{role}}", self._grant_namespace)
        router.add_delete(f"{namespace}/{{role}}", self._revoke_namespace)
        topic = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/permissions"
        router.add_get(topic, self._of_topic)
        router.add_post(f"{topic}/{{role}}", self._grant_topic)
        router.add_delete(f"{topic}/{{role}}", self._revoke_topic)

    # -- namespaces ----------------------------------------------------------------------------------------------

    async def _of_namespace(self, request: web.Request) -> web.Response:
        self._require(request, Operation.DESCRIBE)
        return web.json_response(await self._granted(_pattern_of_namespace(paths.namespace_of(request))))

    async def _grant_namespace(self, request: web.Request) -> web.Response:
        self._require(request, Operation.ALTER)
        return await self._grant(request, _pattern_for_change(paths.namespace_of(request)))

    async def _revoke_namespace(self, request: web.Request) -> web.Response:
        self._require(request, Operation.ALTER)
        await self._revoke(request, _pattern_for_change(paths.namespace_of(request)))
        return web.Response(status=204)

    # -- topics --------------------------------------------------------------------------------------------------

    async def _of_topic(self, request: web.Request) -> web.Response:
        """Return the permissions of a topic with those of its namespace, as Pulsar does."""
        self._require(request, Operation.DESCRIBE)
        patterns = _pattern_of_topic(request), _pattern_of_namespace(paths.namespace_of(request))
        return web.json_response(await self._granted(*patterns))

    async def _grant_topic(self, request: web.Request) -> web.Response:
        self._require(request, Operation.ALTER)
        return await self._grant(request, _pattern_of_topic(request))

    async def _revoke_topic(self, request: web.Request) -> web.Response:
        self._require(request, Operation.ALTER)
        if not await self._revoke(request, _pattern_of_topic(request)):
            raise Problem(412, "Permissions are not set at the topic level")
        return web.Response(status=204)

    # -- inside --------------------------------------------------------------------------------------------------

    def _require(self, request: web.Request, operation: Operation) -> None:
        """Raise `Denied` unless the caller may do this to access rules."""
        who = principal_of(request)
        if not self._streams.authorizer.may_administer(who, operation):
            raise Denied(f"{who} may not {operation.value} access rules: a super user or a rule for the cluster may")

    async def _granted(self, *patterns: Pattern | None) -> dict[str, list[str]]:
        """The actions of each role."""
        found: dict[str, set[Operation]] = {}
        for pattern in patterns:
            if pattern is None:
                continue
            selected = RuleFilter(
                Resource.STREAM, pattern.name, pattern.kind, host=WILDCARD, permission=Permission.ALLOW
            )
            for rule in await self._rules.list(selected):
                if rule.operation in _ACTIONS and rule.principal.startswith(_USER) and rule.principal != EVERYONE:
                    found.setdefault(rule.principal.removeprefix(_USER), set()).add(rule.operation)
        return {
            role: [action for action, operation in OPERATIONS.items() if operation in operations]
            for role, operations in sorted(found.items())
        }

    async def _grant(self, request: web.Request, pattern: Pattern) -> web.Response:
        role, actions = _role_of(request), _actions_in(await paths.body_of(request))
        granted = [pattern.rule(role, OPERATIONS[action]) for action in actions]
        await self._rules.replace(pattern.rules(role), granted, who=principal_of(request))
        return web.Response(status=204)

    async def _revoke(self, request: web.Request, pattern: Pattern) -> int:
        """Delete the rules of a role; returns how many there were."""
        return len(await self._rules.replace(pattern.rules(_role_of(request)), (), who=principal_of(request)))


def _pattern_of_namespace(namespace: str) -> Pattern | None:
    prefix = names.prefix_of(namespace)
    return None if prefix is None else Pattern(prefix, PatternKind.PREFIXED)


def _pattern_for_change(namespace: str) -> Pattern:
    """The pattern of a namespace's rules. Raises `Problem` (501) if there is none."""
    found = _pattern_of_namespace(namespace)
    if found is None:
        reason = "its streams have no prefix in common; grant permissions on topics, or see `bearlake access`"
        raise not_served(f"permissions on namespace {namespace}", reason)
    return found


def _pattern_of_topic(request: web.Request) -> Pattern:
    """The pattern of a topic's rules; the topic need not exist. Raises `Problem` (405) for the name of a partition."""
    name = paths.name_of(request)
    if name.split_partition() is not None:
        raise Problem(405, f"{name} names a partition: permissions apply to the whole topic only")
    return Pattern(name.stream, PatternKind.LITERAL)


def _role_of(request: web.Request) -> str:
    """The role in the path. Raises `Problem` (412)."""
    role = request.match_info["role"]
    if _USER + role == EVERYONE:
        raise Problem(412, f"{EVERYONE} is every caller, not a role: see `bearlake access`")
    return role


def _actions_in(asked: object) -> list[str]:
    """The actions in a body, each once. Raises `Problem` (400, 501)."""
    if not isinstance(asked, list) or not all(isinstance(action, str) for action in asked):
        raise Problem(400, f"expected a list of actions: {', '.join(OPERATIONS)}")
    for action in asked:
        if action in UNSUPPORTED:
            raise not_served(f"the action {action}", f"the actions are {', '.join(OPERATIONS)}")
        if action not in OPERATIONS:
            raise Problem(400, f"action {action[:40]!r}: expected {', '.join(OPERATIONS)}")
    return list(dict.fromkeys(asked))
