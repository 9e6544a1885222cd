"""DescribeUserScramCredentials and AlterUserScramCredentials.

Only super users and callers with an access rule for the cluster may use them. A request alters each user at most once, whatever the
mechanism; the alterations of different users are independent.

Source: KIP-554; Kafka's `ScramImage` and `ScramControlManager` (codes, order of checks).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from bearlake.errors import BearlakeError, Invalid
from bearlake.metadata.users import CredentialChange, User, UserStore, check_user_name
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode, code_of
from bearlake.protocols.kafka.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from bearlake.serving.authentication.credentials import from_salted_password
from bearlake.streams.conflicts import repeated
from bearlake.streams.principal import Operation, Principal, check_login_name
from bearlake.streams.turns import in_turns

MECHANISM_NAMES: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MECHANISM_NUMBERS = {name: number for number, name in MECHANISM_NAMES.items()}

NOT_ALLOWED = (
    "only super users and callers with an access rule for the cluster may list and change users: "
    "log in as one, or use `bearlake user` beside the metadata store"
)

Problem = tuple[ErrorCode, str]
Alteration = AlterUserScramCredentialsRequest.Deletion | AlterUserScramCredentialsRequest.Upsertion


async def describe(
    context: KafkaContext, caller: Caller, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of users; null or no users: all."""
    answer = DescribeUserScramCredentialsResponse(error_message=None, results=[])
    if not _may(context, caller, Operation.DESCRIBE):
        answer.error_code, answer.error_message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
        return answer
    store = context.streams.metadata.users
    try:
        if request.users:
            counts = Counter(user.name for user in request.users)
            answer.results = [await _described(store, name, count) for name, count in counts.items()]
        else:
            answer.results = [_result(user) for user in await _all(store)]
    except BearlakeError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


async def alter(
    context: KafkaContext, caller: Caller, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials."""
    wanted: dict[str, Alteration] = {}
    repeated_names: set[str] = set()
    both: tuple[Sequence[Alteration], ...] = (request.deletions, request.upsertions)
    for alterations in both:
        async for part in in_turns(alterations):
            for alteration in part:
                if wanted.setdefault(alteration.name, alteration) is not alteration:
                    repeated_names.add(alteration.name)
    is_allowed = _may(context, caller, Operation.ALTER)
    results = []
    async for names in in_turns(list(wanted)):
        for name in names:
            problem: Problem | None = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED)
            if is_allowed:
                problem = await _alter_one(context, caller.who, wanted[name], is_repeated=name in repeated_names)
            code, message = problem or (ErrorCode.NONE, None)
            results.append(AlterUserScramCredentialsResponse.Result(user=name, error_code=code, error_message=message))
    return AlterUserScramCredentialsResponse(results=results)


def _may(context: KafkaContext, caller: Caller, operation: Operation) -> bool:
    return context.streams.authorizer.may_administer(caller.who, operation)


async def _described(store: UserStore, name: str, count: int) -> DescribeUserScramCredentialsResponse.Result:
    if count > 1:
        return DescribeUserScramCredentialsResponse.Result(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
            credential_infos=[],
        )
    user = await store.get(name)
    if user is None:
        return DescribeUserScramCredentialsResponse.Result(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
            credential_infos=[],
        )
    return _result(user)


def _result(user: User) -> DescribeUserScramCredentialsResponse.Result:
    kind = DescribeUserScramCredentialsResponse.CredentialInfo
    infos = [
        kind(mechanism=MECHANISM_NUMBERS[credential.mechanism], iterations=credential.iterations)
        for credential in user.credentials
        if credential.mechanism in MECHANISM_NUMBERS
    ]
    return DescribeUserScramCredentialsResponse.Result(user=user.name, error_message=None, credential_infos=infos)


async def _all(store: UserStore) -> Sequence[User]:
    found: list[User] = []
    while page := await store.list(after=found[-1].name if found else ""):
        found += page
    return found


async def _alter_one(
    context: KafkaContext, who: Principal, alteration: Alteration, *, is_repeated: bool
) -> Problem | None:
    """Alter one user; returns what went wrong.

    `alteration`: the user's first of the request. If `is_repeated`, there are others: none happens. As in Kafka, a fault of the first one
    precedes the repetition.
    """
    name, store = alteration.name, context.streams.metadata.users
    try:
        check_user_name(name)
        check_login_name(name)
    except Invalid as error:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)
    if alteration.mechanism not in MECHANISM_NAMES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    try:
        change = _change(alteration)
    except Invalid as error:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)

    async def attempt() -> Problem | None:
        revision = await store.revision()
        user = await store.get(name)
        present = set() if user is None else {credential.mechanism for credential in user.credentials}
        if change.credential is None and change.mechanism not in present:
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        if is_repeated:
            return ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        with context.streams.audit.change(who, Operation.ALTER, "User", name, _detail(change)):
            await store.change([change], revision=revision)
        return None

    try:
        return await repeated("users", attempt)
    except BearlakeError as error:
        return code_of(error), str(error)


def _detail(change: CredentialChange) -> str:
    """Name a change for the audit log, without what proves a login."""
    return f"{'delete' if change.credential is None else 'set'} {change.mechanism}"


def _change(alteration: Alteration) -> CredentialChange:
    """Raises `Invalid` for a credential that is too weak, too strong or malformed."""
    mechanism = MECHANISM_NAMES[alteration.mechanism]
    if isinstance(alteration, AlterUserScramCredentialsRequest.Deletion):
        return CredentialChange(alteration.name, mechanism, None)
    credential = from_salted_password(
        mechanism, alteration.iterations, bytes(alteration.salt), bytes(alteration.salted_password)
    )
    return CredentialChange(alteration.name, mechanism, credential)
