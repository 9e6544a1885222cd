"""ListPartitionReassignments and ElectLeaders: every server serves every partition, so none moves, and none needs another leader.

Source: KIP-455, KIP-460; the controller of Apache Kafka 4.3, which leaves partitions that do not move out of the one list, and of the
other one, if it is asked for all partitions, those whose leader stays.
"""

import asyncio

from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.messages import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from bearlake.protocols.kafka.rights import on_cluster
from bearlake.streams.principal import Operation
from bearlake.streams.turns import Turns

_ELECTION_TYPES = (0, 1)
"""Preferred, unclean."""
_NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED, "every server leads every partition"
_UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "there is no such partition",
)  # without its name: a request has a million


async def list_reassignments(
    context: KafkaContext, caller: Caller, _: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return no reassignment, whatever topics the request names."""
    if not on_cluster(context, caller, Operation.DESCRIBE):
        code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Needs DESCRIBE on the cluster"
        return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=[])
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])


async def elect_leaders(context: KafkaContext, caller: Caller, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Say of each named partition that it needs no other leader. `topic_partitions` null: all partitions, which need no answer."""
    refusal: tuple[ErrorCode, str] | None = None
    if not on_cluster(context, caller, Operation.ALTER):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Needs ALTER on the cluster"
    elif request.election_type not in _ELECTION_TYPES:
        message = f"election type {request.election_type}: expected 0 (preferred) or 1 (unclean)"
        refusal = ErrorCode.INVALID_REQUEST, message
    turns = Turns()
    results: list[ElectLeadersResponse.ReplicaElectionResult] = []
    for topic in request.topic_partitions or ():
        view = context.topics.peek(topic.topic)
        indexes = range(0 if view is None else view.partition_count)
        answers: list[ElectLeadersResponse.PartitionResult] = []
        results.append(ElectLeadersResponse.ReplicaElectionResult(topic=topic.topic, partition_result=answers))
        for index in topic.partitions:
            if turns.is_over():
                await asyncio.sleep(0)
            code, message = refusal or (_NOT_NEEDED if index in indexes else _UNKNOWN)
            answers.append(
                ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
    return ElectLeadersResponse(error_code=0 if refusal is None else refusal[0], replica_election_results=results)
