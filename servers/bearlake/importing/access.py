"""Copies access rules of the source, and lists its SCRAM users, whose passwords no cluster shows.

Rules for the imported topics, for groups and for transactional ids are created here; rules that exist stay, and none is deleted. Rules for
the cluster are not copied: they would make the source's administrators administrators here.

Source: Kafka protocol guide (DescribeAcls, DescribeUserScramCredentials); KIP-11, KIP-290, KIP-554.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from bearlake.errors import Invalid, Unsupported
from bearlake.importing.cluster import SourceCluster, check
from bearlake.metadata.access_rules import AccessRule, Resource, check_rule
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.acls import OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES
from bearlake.streams.access.control import AccessControl

_ANY = 1
_SECURITY_DISABLED = 54
"""The source has no authorizer, so no rules."""
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@dataclass(slots=True)
class AccessCopied:
    """What was copied."""

    rules: list[AccessRule] = field(default_factory=list)
    """The rules that the deployment has now."""
    left: list[str] = field(default_factory=list)
    """Rules that were not copied, in words."""
    users: list[tuple[str, str, int]] = field(default_factory=list)
    """SCRAM users of the source: name, mechanism, iterations. Each needs a new password here."""


async def copy_access(cluster: SourceCluster, access: AccessControl, topics: Collection[str]) -> AccessCopied:
    """Copy the rules that concern these topics, groups and transactional ids.

    Raises:
        Denied: the source does not let this client see its rules.
        Invalid: there would be too many rules here.
        Unavailable: the source or the metadata store does not answer.
    """
    copied = AccessCopied()
    async with await cluster.connect() as connection:
        any_rule = messages.DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        answer = await connection.ask(any_rule)
        if answer.error_code != _SECURITY_DISABLED:
            check(answer.error_code, "its access rules")
        for resource in answer.resources or ():
            for acl in resource.acls:
                _take(copied, resource, acl, topics)
        try:
            found = await connection.ask(messages.DescribeUserScramCredentialsRequest(users=None))
        except Unsupported:  # before Kafka 2.7
            found = None
    if found is not None:
        check(found.error_code, "its users")
        copied.users = sorted(_users(found.results))
    if copied.rules:
        await access.create(copied.rules)
    return copied


def _take(copied: AccessCopied, resource: Any, acl: Any, topics: Collection[str]) -> None:
    kind, pattern = RESOURCES.get(resource.resource_type), PATTERNS.get(resource.pattern_type)
    operation, permission = OPERATIONS.get(acl.operation), PERMISSIONS.get(acl.permission_type)
    text = f"{acl.principal} on {kind.value if kind else f'resource type {resource.resource_type}'}:{resource.resource_name}"
    if kind is None or pattern is None or operation is None or permission is None:
        copied.left.append(f"{text}: it has no meaning here")
        return
    if kind is Resource.CLUSTER:
        copied.left.append(f"{text}: it would give rights on this whole deployment")
        return
    rule = AccessRule(kind, resource.resource_name, pattern, acl.principal, acl.host, operation, permission)
    if kind is Resource.STREAM and not any(rule.covers(name) for name in topics):
        return
    try:
        check_rule(rule)
    except Invalid as error:
        copied.left.append(f"{text}: {error}")
    else:
        copied.rules.append(rule)


def _users(results: Sequence[Any]) -> list[tuple[str, str, int]]:
    return [
        (result.user, _MECHANISMS.get(credential.mechanism, f"mechanism {credential.mechanism}"), credential.iterations)
        for result in results
        if result.error_code == ErrorCode.NONE
        for credential in result.credential_infos
    ]
