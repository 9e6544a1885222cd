"""ListPartitionReassignments: every server serves every partition, so no partition ever moves from one to another.

Source: KIP-455; the controller of Apache Kafka 4.3, which answers topics that do not exist, or do not move, by leaving them out.
"""

from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from bearlake.protocols.kafka.rights import on_cluster
from bearlake.streams.principal import Operation


async def list_reassignments(
    context: KafkaContext, caller: Caller, _: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return no reassignment, whatever topics the request names."""
    if not on_cluster(context, caller, Operation.DESCRIBE):
        code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Needs DESCRIBE on the cluster"
        return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=[])
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])
