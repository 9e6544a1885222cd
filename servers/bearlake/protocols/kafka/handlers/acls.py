"""DescribeAcls, CreateAcls and DeleteAcls: the access rules in Kafka's terms.

The caller must be a super user, or have ALTER or DESCRIBE on the cluster by a rule; `access.allow_if_no_rule` does not count. Rules
for resources that Kafka does not know (subjects, namespaces) cannot be named here: this API neither lists nor deletes them.

All creations of a request that are valid happen in one step; so do all deletions.

Source: KIP-11, KIP-140, KIP-290; Kafka's `AclApis` and `AclControlManager` (codes, order of checks).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bearlake.errors import BearlakeError, Invalid
from bearlake.metadata.access_rules import (
    AccessRule,
    NameMatch,
    Operation,
    PatternKind,
    Permission,
    Resource,
    RuleFilter,
    check_rule,
)
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from bearlake.streams.turns import in_turns

Answer = TypeVar("Answer", CreateAclsResponse.Result, DeleteAclsResponse.FilterResult)
Item = TypeVar("Item")
Parsed = TypeVar("Parsed")

ANY = 1
MATCH = 2

RESOURCES: Mapping[int, Resource] = {
    2: Resource.STREAM,
    3: Resource.GROUP,
    4: Resource.CLUSTER,
    5: Resource.TRANSACTIONAL_ID,
}
RESOURCE_NUMBERS = {kind: number for number, kind in RESOURCES.items()}
PATTERNS: Mapping[int, PatternKind] = {3: PatternKind.LITERAL, 4: PatternKind.PREFIXED}
PATTERN_NUMBERS = {kind: number for number, kind in PATTERNS.items()}
PERMISSIONS: Mapping[int, Permission] = {2: Permission.DENY, 3: Permission.ALLOW}
PERMISSION_NUMBERS = {kind: number for number, kind in PERMISSIONS.items()}
OPERATIONS: Mapping[int, Operation] = {operation.number: operation for operation in Operation}

NOT_ALLOWED = (
    "only super users and callers with an access rule for the cluster may list and change access rules: "
    "log in as one, or use `bearlake access` beside the metadata store"
)


async def describe(context: KafkaContext, caller: Caller, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """The rules that the filter selects, by resource."""
    answer = DescribeAclsResponse(error_message=None, resources=[])
    if not context.streams.authorizer.may_administer(caller.who, Operation.DESCRIBE):
        answer.error_code, answer.error_message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
        return answer
    try:
        found = await context.streams.access.list(_filter(request))
    except BearlakeError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
        return answer
    resources: dict[tuple[Resource, str, PatternKind], DescribeAclsResponse.Resource] = {}
    for rule in found:
        if rule.resource not in RESOURCE_NUMBERS:
            continue
        resource = resources.setdefault(
            rule[:3],
            DescribeAclsResponse.Resource(
                resource_type=RESOURCE_NUMBERS[rule.resource],
                resource_name=rule.name,
                pattern_type=PATTERN_NUMBERS[rule.pattern],
                acls=[],
            ),
        )
        resource.acls.append(
            DescribeAclsResponse.Acl(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation.number,
                permission_type=PERMISSION_NUMBERS[rule.permission],
            )
        )
    answer.resources = list(resources.values())
    return answer


async def create(context: KafkaContext, caller: Caller, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create rules; those that exist stay."""
    results, rules, valid = await _parsed(context, caller, request.creations, _created, _rule)
    if rules:
        distinct: dict[AccessRule, None] = {}
        async for part in in_turns(rules):
            distinct.update(dict.fromkeys(part))
        try:
            await context.streams.access.create(list(distinct), who=caller.who)
        except BearlakeError as error:
            await _refuse(valid, error)
    return CreateAclsResponse(results=results)


async def delete(context: KafkaContext, caller: Caller, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the rules that any filter selects."""
    results, filters, valid = await _parsed(context, caller, request.filters, _deleted, _filter)
    if filters:
        try:
            deleted = await context.streams.access.delete(filters, kinds=frozenset(RESOURCE_NUMBERS), who=caller.who)
        except BearlakeError as error:
            await _refuse(valid, error)
        else:
            for answer, rules in zip(valid, deleted, strict=True):
                async for part in in_turns(rules):
                    answer.matching_acls += map(_matching, part)
    return DeleteAclsResponse(filter_results=results)


def _created() -> CreateAclsResponse.Result:
    return CreateAclsResponse.Result(error_message=None)


def _deleted() -> DeleteAclsResponse.FilterResult:
    return DeleteAclsResponse.FilterResult(error_message=None, matching_acls=[])


async def _parsed(
    context: KafkaContext,
    caller: Caller,
    items: Sequence[Item],
    blank: Callable[[], Answer],
    parse: Callable[[Item], Parsed],
) -> tuple[list[Answer], list[Parsed], list[Answer]]:
    """Return an answer for each item, the valid items, parsed, and their answers; the other answers have an error.

    `parse` raises `Invalid`.
    """
    answers: list[Answer] = []
    found: list[Parsed] = []
    valid: list[Answer] = []
    is_allowed = context.streams.authorizer.may_administer(caller.who, Operation.ALTER)
    async for part in in_turns(items):
        for item in part:
            answer = blank()
            answers.append(answer)
            if not is_allowed:
                answer.error_code, answer.error_message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
                continue
            try:
                found.append(parse(item))
                valid.append(answer)
            except Invalid as error:
                answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, str(error)
    return answers, found, valid


async def _refuse(answers: Sequence[Answer], error: BearlakeError) -> None:
    """Answer that the change failed, in turns of the event loop."""
    code, message = code_of(error), str(error)
    async for part in in_turns(answers):
        for answer in part:
            answer.error_code, answer.error_message = code, message


def _matching(rule: AccessRule) -> DeleteAclsResponse.MatchingAcl:
    return DeleteAclsResponse.MatchingAcl(
        error_message=None,
        resource_type=RESOURCE_NUMBERS[rule.resource],
        resource_name=rule.name,
        pattern_type=PATTERN_NUMBERS[rule.pattern],
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation.number,
        permission_type=PERMISSION_NUMBERS[rule.permission],
    )


def _rule(creation: CreateAclsRequest.Creation) -> AccessRule:
    """Raises `Invalid`."""
    resource = RESOURCES.get(creation.resource_type)
    pattern = PATTERNS.get(creation.resource_pattern_type)
    operation = OPERATIONS.get(creation.operation)
    permission = PERMISSIONS.get(creation.permission_type)
    if resource is None:
        raise Invalid(f"resource type {creation.resource_type}: expected {_numbers(RESOURCES)}")
    if pattern is None:
        raise Invalid(f"pattern type {creation.resource_pattern_type}: expected {_numbers(PATTERNS)}")
    if operation is None:
        raise Invalid(f"operation {creation.operation}: expected {_numbers(OPERATIONS)}")
    if permission is None:
        raise Invalid(f"permission type {creation.permission_type}: expected {_numbers(PERMISSIONS)}")
    rule = AccessRule(
        resource, creation.resource_name, pattern, creation.principal, creation.host, operation, permission
    )
    check_rule(rule)
    return rule


def _filter(given: DescribeAclsRequest | DeleteAclsRequest.Filter) -> RuleFilter:
    """Raises `Invalid`."""
    for what, number, known in (
        ("resource type", given.resource_type_filter, (ANY, *RESOURCES)),
        ("pattern type", given.pattern_type_filter, (ANY, MATCH, *PATTERNS)),
        ("operation", given.operation, (ANY, *OPERATIONS)),
        ("permission type", given.permission_type, (ANY, *PERMISSIONS)),
    ):
        if number not in known:
            raise Invalid(f"{what} {number} of a filter: expected {_numbers(known)}")
    return RuleFilter(
        resource=RESOURCES.get(given.resource_type_filter),
        name=given.resource_name_filter,
        pattern=PATTERNS.get(given.pattern_type_filter),
        match=NameMatch.COVERED if given.pattern_type_filter == MATCH else NameMatch.SAME,
        principal=given.principal_filter,
        host=given.host_filter,
        operation=OPERATIONS.get(given.operation),
        permission=PERMISSIONS.get(given.permission_type),
    )


def _numbers(known: Mapping[int, object] | Sequence[int]) -> str:
    return ", ".join(str(number) for number in sorted(known))
