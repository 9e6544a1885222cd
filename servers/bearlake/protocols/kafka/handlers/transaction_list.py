"""ListTransactions: the transactional ids that filters select.

Source: KIP-664, KIP-994 (durations), KIP-1152 (patterns).
"""

import re2

from bearlake.errors import BearlakeError
from bearlake.metadata.transactions import Transaction
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.handlers.transactions import STATES
from bearlake.protocols.kafka.messages import ListTransactionsRequest, ListTransactionsResponse
from bearlake.protocols.kafka.rights import sees_transaction
from bearlake.streams.name_patterns import compiled

_OTHER_STATES = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"})
"""States of Kafka that no transactional id has here."""


async def list_all(context: KafkaContext, caller: Caller, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """The transactional ids that the caller may see and the filters select."""
    known = set(STATES.values())
    unknown = [state for state in request.state_filters if state not in known | _OTHER_STATES]
    try:
        asked = request.transactional_id_pattern
        pattern = compiled(asked) if asked else None
    except re2.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    if request.state_filters and len(unknown) == len(request.state_filters):
        return ListTransactionsResponse(unknown_state_filters=unknown)
    found: list[ListTransactionsResponse.State] = []
    try:
        now_ms = await context.streams.metadata.now_ms()
        async for page in context.streams.transactions.pages():
            found += [
                ListTransactionsResponse.State(
                    transactional_id=row.transactional_id,
                    producer_id=row.producer_id,
                    transaction_state=STATES[row.state],
                )
                for row in page
                if _is_selected(row, request, now_ms)
                and (pattern is None or pattern.fullmatch(row.transactional_id))
                and sees_transaction(context, caller, row.transactional_id)
            ]
    except BearlakeError:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _is_selected(row: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and STATES[row.state] not in request.state_filters:
        return False
    if request.producer_id_filters and row.producer_id not in request.producer_id_filters:
        return False
    duration_ms = request.duration_filter
    return duration_ms < 0 or (row.is_ongoing and now_ms - row.started_ms > duration_ms)
