"""Access rules over HTTP: list, create, delete. The operator writes the rules of Streams here.

A request's rules are created or deleted in one step, or not at all. A request may name the revision of the rules that its caller read; it
is refused (409) if the rules have changed since. So a request that arrives late cannot undo a newer change (I12).
"""

from aiohttp import web

from bearlake.errors import Invalid
from bearlake.metadata.access_rules import (
    EVERYONE,
    PRINCIPAL_KINDS,
    WILDCARD,
    AccessRule,
    NameMatch,
    Operation,
    Resource,
    RuleFilter,
)
from bearlake.serving.admin import models
from bearlake.serving.http.login import principal_of
from bearlake.serving.http.models import UNSET, fields_given
from bearlake.streams.access.control import AccessControl
from bearlake.streams.principal import Principal, host_of

DECIDING_COUNT_MAX = 1_000
"""Rules that the answer about one resource shows at most."""


class AccessRoutes:
    """The handlers under `/v1/access`."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get("/v1/access", self.list)
        router.add_get("/v1/access/decisions", self.decide)
        router.add_post("/v1/access", self.create)
        router.add_delete("/v1/access", self.delete)

    async def list(self, request: web.Request) -> web.Response:
        """List access rules in a fixed order, one page. All rules share one revision, which grows with every change."""
        page = models.ACCESS_PAGE.read(request)
        found = await self._access.select(
            RuleFilter(
                resource=Resource(page.resource) if page.resource else None,
                name=page.name or None,
                principal=page.principal or None,
            )
        )
        start = page.after + 1
        end = min(start + page.limit, len(found.rules))
        answer = models.RulePage(
            revision=found.revision,
            rules=[models.Rule(**rule._asdict()) for rule in found.rules[start:end]],
            next=end - 1 if end < len(found.rules) else None,
        )
        return web.json_response(fields_given(answer))

    async def decide(self, request: web.Request) -> web.Response:
        """Get what a principal may do to a resource, which need not exist, and by which rules."""
        asked = models.DECISION.read(request)
        kind, _, name = asked.principal.partition(":")
        if kind != PRINCIPAL_KINDS[0] or not name:
            raise Invalid(f"principal {asked.principal[:100]!r}: expected User:name")
        who = Principal(kind, name, frozenset(asked.group), host=host_of(asked.host))
        resource = Resource(asked.resource)
        matching = await self._access.list(RuleFilter(resource=resource, name=asked.name, match=NameMatch.COVERED))
        principals = {str(who), EVERYONE, *(f"Group:{group}" for group in who.groups)}
        hosts = {WILDCARD, who.host}
        mask = self._access.operations(who, resource, asked.name)
        answer = models.Decided(
            is_super_user=self._access.is_super_user(who),
            has_rules=bool(matching),
            operations={item.value: bool(mask & item.bit) for item in Operation if item is not Operation.ALL},
            rules=[
                models.Rule(**rule._asdict())
                for rule in matching
                if rule.principal in principals and (not who.host or host_of(rule.host) in hosts)
            ][:DECIDING_COUNT_MAX],
        )
        return web.json_response(fields_given(answer))

    async def create(self, request: web.Request) -> web.Response:
        """Create access rules, all or none; rules that exist stay. Without `revision`, other changes at the same time do not matter."""
        who, change = principal_of(request), await _change(request)
        rules = [_rule(rule) for rule in change.rules]
        if change.revision is UNSET:
            await self._access.create(rules, who=who)
            revision = self._access.revision
        else:
            revision = await self._access.change(created=rules, deleted=(), revision=change.revision, who=who)
        return web.json_response({"revision": revision})

    async def delete(self, request: web.Request) -> web.Response:
        """Delete exactly these access rules, all or none; missing rules are ignored."""
        who, change = principal_of(request), await _change(request)
        rules = [_rule(rule) for rule in change.rules]
        if change.revision is UNSET:
            await self._access.delete([_only(rule) for rule in rules], who=who)
            revision = self._access.revision
        else:
            revision = await self._access.change(created=(), deleted=rules, revision=change.revision, who=who)
        return web.json_response({"revision": revision})


async def _change(request: web.Request) -> models.RuleChange:
    """Raises `Malformed`, `Mismatch`, `Invalid`."""
    if request.content_type != "application/json":
        raise Invalid("expected JSON with Content-Type: application/json")
    return models.RULE_CHANGE.read(await request.read())


def _rule(given: models.Rule) -> AccessRule:
    return AccessRule(
        resource=given.resource,
        name=given.name,
        pattern=given.pattern,
        principal=given.principal,
        host=given.host,
        operation=given.operation,
        permission=given.permission,
    )


def _only(rule: AccessRule) -> RuleFilter:
    """Return the filter that selects this rule and no other."""
    return RuleFilter(**rule._asdict())
