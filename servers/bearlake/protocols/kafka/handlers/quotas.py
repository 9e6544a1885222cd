"""DescribeClientQuotas and AlterClientQuotas: the quotas in Kafka's terms.

They need DESCRIBE_CONFIGS or ALTER_CONFIGS on the cluster by a rule, or a super user: what is allowed because no rule says anything does
not count, since clients could lift their own quotas.

The changes of one entity happen all or not at all. All valid entities of a request change in one step.

Source: KIP-546; Kafka's `ClientQuotasImage` and `ClientQuotaControlManager` (codes, messages, order of checks). Unlike in Kafka,
values must be from `VALUE_MIN` to `VALUE_MAX`.
"""

import asyncio
import math
from collections.abc import Sequence

from bearlake.errors import BearlakeError, Invalid
from bearlake.metadata.quotas import (
    DEFAULT,
    WHOLE_KEYS,
    Default,
    Entity,
    Part,
    Quota,
    QuotaChange,
    QuotaKey,
    check_change,
    keys_of,
)
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from bearlake.streams.principal import Operation
from bearlake.streams.turns import Turns, in_turns

USER, CLIENT_ID, ADDRESS = "user", "client-id", "ip"
TYPES = (USER, CLIENT_ID, ADDRESS)

EXACT, BY_DEFAULT, SPECIFIED = 0, 1, 2
"""Values of `match_type`."""

EPSILON = 1e-6
"""How far a whole number may be off, as in Kafka."""

NOT_ALLOWED = (
    "only super users and callers with an access rule for the cluster may list and change quotas: "
    "log in as one, or use `bearlake quota` beside the metadata store"
)

Problem = tuple[ErrorCode, str]


async def describe(
    context: KafkaContext, caller: Caller, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas that the filter selects, by entity."""
    if not context.streams.authorizer.may_administer(caller.who, Operation.DESCRIBE_CONFIGS):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED)
    wanted, problem = _filter(request.components)
    if problem is not None:
        return _refused(*problem)
    try:
        quotas = await context.streams.quotas.list()
    except BearlakeError as error:
        return _refused(code_of(error), str(error))
    entries: dict[Entity, DescribeClientQuotasResponse.Entry] = {}
    for quota in quotas:
        if _selects(wanted, request.strict, quota):
            entry = entries.setdefault(
                quota.entity,
                DescribeClientQuotasResponse.Entry(
                    entity=[
                        DescribeClientQuotasResponse.Entity(entity_type=type_, entity_name=_name(part))
                        for type_, part in _parts(quota.entity)
                    ],
                    values=[],
                ),
            )
            entry.values.append(DescribeClientQuotasResponse.Value(key=quota.key.value, value=quota.value))
    return DescribeClientQuotasResponse(error_message=None, entries=list(entries.values()))


async def alter(context: KafkaContext, caller: Caller, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Set and remove quotas; with `validate_only`, only check them."""
    is_allowed = context.streams.authorizer.may_administer(caller.who, Operation.ALTER_CONFIGS)
    problems: list[Problem | None] = []
    changes: dict[Entity, Sequence[QuotaChange]] = {}
    turns = Turns()
    for entry in request.entries:
        if turns.is_over(1 + len(entry.entity) + len(entry.ops)):
            await asyncio.sleep(0)
        found = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED) if not is_allowed else _changes(entry)
        if isinstance(found, list):
            entity = _entity(entry.entity)
            problems.append(None if entity not in changes else _invalid(f"Ignoring duplicate entity {entity}"))
            changes.setdefault(entity, found)
        else:
            problems.append(found)
    if changes and not request.validate_only:
        try:
            await context.streams.quotas.change(
                [change for of_one in changes.values() for change in of_one], who=caller.who
            )
        except BearlakeError as error:
            problems = [(code_of(error), str(error)) if problem is None else problem for problem in problems]
    answers: list[AlterClientQuotasResponse.Entry] = []
    async for places in in_turns(range(len(problems))):
        answers += [_answer(request.entries[place], problems[place]) for place in places]
    return AlterClientQuotasResponse(entries=answers)


def _refused(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _invalid(message: str) -> Problem:
    return ErrorCode.INVALID_REQUEST, message


def _answer(entry: AlterClientQuotasRequest.Entry, problem: Problem | None) -> AlterClientQuotasResponse.Entry:
    code, message = problem or (ErrorCode.NONE, None)
    entity = [
        AlterClientQuotasResponse.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
        for part in entry.entity
    ]
    return AlterClientQuotasResponse.Entry(error_code=code, error_message=message, entity=entity)


# -- filters -----------------------------------------------------------------------------------------------------------

Selection = dict[str, Part]
"""The part that each type must have; None: any."""


def _filter(components: Sequence[DescribeClientQuotasRequest.Component]) -> tuple[Selection, Problem | None]:
    """Return what the components select, and their first fault if they have any."""
    wanted: Selection = {}
    for component in components:
        type_, kind, match = component.entity_type, component.match_type, component.match
        if not type_:
            return {}, _invalid("Invalid empty entity type.")
        if type_ in wanted:
            return {}, _invalid(f"Entity type {type_} cannot appear more than once in the filter.")
        if type_ not in TYPES:
            return {}, (ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {type_}")
        names = {EXACT: "MATCH_TYPE_EXACT", BY_DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}
        if kind not in names:
            return {}, _invalid(f"Unknown match type {kind}")
        if kind == EXACT and match is None:
            return {}, _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if kind != EXACT and match is not None:
            return {}, _invalid(f"Request specified {names[kind]}, but also specified a match string.")
        wanted[type_] = {EXACT: match, BY_DEFAULT: DEFAULT, SPECIFIED: None}[kind]
    if ADDRESS in wanted and len(wanted) > 1:
        return {}, _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component."
        )
    return wanted, None


def _selects(wanted: Selection, is_strict: bool, quota: Quota) -> bool:
    present = dict(_parts(quota.entity))
    if is_strict and len(present) != len(wanted):
        return False
    return all(type_ in present and part in (None, present[type_]) for type_, part in wanted.items())


def _parts(entity: Entity) -> list[tuple[str, str | Default]]:
    return [(type_, part) for type_, part in zip(TYPES, entity, strict=True) if part is not None]


def _name(part: str | Default) -> str | None:
    return None if isinstance(part, Default) else part


# -- changes -----------------------------------------------------------------------------------------------------------


def _changes(entry: AlterClientQuotasRequest.Entry) -> list[QuotaChange] | Problem:
    """Return the changes of one entity, or their first fault."""
    seen: set[str] = set()
    for part in entry.entity:
        if part.entity_type in seen:
            return _invalid(f"Invalid empty client quota entity, duplicate entity entry {part.entity_type}")
        seen.add(part.entity_type)
        if part.entity_type not in TYPES:
            return _invalid(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            return _invalid(f"Empty {part.entity_type} not supported")
    entity = _entity(entry.entity)
    try:
        known = {key.value: key for key in keys_of(entity)}
    except Invalid:
        return _invalid("Invalid empty client quota entity")
    changes: list[QuotaChange] = []
    for op in entry.ops:
        if op.key not in known:
            return _invalid(f"Invalid configuration key {op.key}")
        if any(change.key.value == op.key for change in changes):
            return _invalid(f"Duplicate quota key {op.key} not updating quota for this entity {entity}")
        change = QuotaChange(entity, known[op.key], None if op.remove else _value(known[op.key], op.value))
        try:
            check_change(change)
        except Invalid as error:
            return _invalid(_message(change, error))
        changes.append(change)
    return changes


def _entity(parts: Sequence[AlterClientQuotasRequest.Entity]) -> Entity:
    given: dict[str, Part] = {
        part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in parts
    }
    return Entity(given.get(USER), given.get(CLIENT_ID), given.get(ADDRESS))


def _value(key: QuotaKey, value: float) -> float:
    """Return the value to store: a whole number that is off by rounding, corrected."""
    if key in WHOLE_KEYS and math.isfinite(value) and abs(round(value) - value) <= EPSILON:
        return float(round(value))
    return value


def _message(change: QuotaChange, error: Invalid) -> str:
    """Kafka's message where Kafka refuses the change too."""
    entity, key, value = change
    if value is not None and value > 0 and math.isfinite(value) and key in WHOLE_KEYS and value != math.floor(value):
        return f"Configuration {key.value} must be a Long value"
    if isinstance(entity.address, str) and "is not an IP address" in str(error):
        return f"{entity.address} is not a valid IP or resolvable host."
    return str(error)
