"""Kafka's error codes, and the only mapping from our error kinds to them.

Source: Apache Kafka, `org.apache.kafka.common.protocol.Errors`.
"""

from enum import IntEnum

from bearlake import errors
from bearlake.kernel import BatchStatus
from bearlake.streams.append import Verdict
from bearlake.streams.internal_topics import InternalTopic


class ErrorCode(IntEnum):
    """The codes that this server returns."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    INVALID_REGULAR_EXPRESSION = 128
    STREAMS_INVALID_TOPOLOGY = 130
    SHARE_SESSION_LIMIT_REACHED = 133


_BY_KIND: tuple[tuple[type[errors.BearlakeError], ErrorCode], ...] = (
    (errors.TooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (errors.Corrupt, ErrorCode.CORRUPT_MESSAGE),
    (errors.Unsupported, ErrorCode.UNSUPPORTED_VERSION),
    (InternalTopic, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (errors.Invalid, ErrorCode.INVALID_REQUEST),
    (errors.NotFound, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (errors.AlreadyExists, ErrorCode.TOPIC_ALREADY_EXISTS),
    (errors.Fenced, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.OutOfOrder, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (errors.OutOfRange, ErrorCode.OFFSET_OUT_OF_RANGE),
    (errors.Denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (errors.Throttled, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    (errors.Overloaded, ErrorCode.REQUEST_TIMED_OUT),
    (errors.Unavailable, ErrorCode.REQUEST_TIMED_OUT),
    (errors.Conflict, ErrorCode.UNKNOWN_SERVER_ERROR),
)


def code_of(error: errors.BearlakeError) -> ErrorCode:
    """The code for an error kind. APIs with codes of their own (groups, configs) map their errors first."""
    for kind, code in _BY_KIND:
        if isinstance(error, kind):
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


VERDICT_CODES: tuple[ErrorCode, ...] = (
    ErrorCode.NONE,  # ACCEPTED
    ErrorCode.NONE,  # DUPLICATE: returns the original offset, like a new batch (KIP-98)
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_REQUEST,  # UNEXPECTED_OFFSET: Kafka requests cannot expect an offset
    ErrorCode.POLICY_VIOLATION,  # TERMINATED: final for clients
    ErrorCode.UNKNOWN_PRODUCER_ID,  # the producer needs a new epoch; clients also need the log start offset
    ErrorCode.REQUEST_TIMED_OUT,  # UNAVAILABLE: retriable, with the same sequence
    ErrorCode.INVALID_TXN_STATE,  # NO_TRANSACTION
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # SERVER_FENCED: the client must use another server
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # NOT_STORED: the only retriable code that librdkafka does not treat as "possibly persisted"
)
"""Codes by `Verdict`."""
assert len(VERDICT_CODES) == len(Verdict)

STATUS_CODES: dict[int, tuple[ErrorCode, str]] = {
    BatchStatus.EMPTY: (ErrorCode.INVALID_RECORD, "the partition's records are empty: expected one record batch"),
    BatchStatus.TRUNCATED: (ErrorCode.CORRUPT_MESSAGE, "the record batch is truncated, or its length field is wrong"),
    BatchStatus.OLD_MAGIC: (
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        "message formats 0 and 1 are not supported: send record batches with magic 2 (Kafka 0.11 and newer)",
    ),
    BatchStatus.UNKNOWN_MAGIC: (ErrorCode.CORRUPT_MESSAGE, "unknown magic: expected a record batch with magic 2"),
    BatchStatus.MANY_BATCHES: (
        ErrorCode.INVALID_RECORD,
        "more than one record batch for one partition: expected exactly one",
    ),
    BatchStatus.BAD_CRC: (ErrorCode.CORRUPT_MESSAGE, "the record batch does not match its CRC32C"),
    BatchStatus.UNKNOWN_COMPRESSION: (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "unknown compression: expected none, gzip, snappy, lz4 or zstd",
    ),
    BatchStatus.CONTROL: (ErrorCode.INVALID_RECORD, "only servers may write control batches"),
    BatchStatus.BAD_COUNT: (
        ErrorCode.INVALID_RECORD,
        "the record count is not positive or contradicts the size of the batch",
    ),
    BatchStatus.BAD_OFFSETS: (
        ErrorCode.INVALID_RECORD,
        "expected base offset 0 and a last offset delta of record count - 1",
    ),
    BatchStatus.BAD_PRODUCER: (
        ErrorCode.INVALID_RECORD,
        "a batch with a producer id requires a non-negative epoch and sequence",
    ),
    BatchStatus.BAD_TIMESTAMP: (
        ErrorCode.INVALID_TIMESTAMP,
        "timestamps below -1, or a batch that claims log append time, which only servers may set",
    ),
    BatchStatus.ZSTD_TOO_EARLY: (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "zstd requires Produce version 7 or newer (KIP-110)",
    ),
}
"""The error code and message for a batch that the kernel rejected, by `BatchStatus`."""
