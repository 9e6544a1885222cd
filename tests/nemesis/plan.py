"""The sizes of a run: numbers and kinds of servers, workers and clients."""

from nemesis.cluster import Size

PRODUCERS = ("produce-librdkafka", "produce-short-lived", "produce-plain")
KAFKA = (*PRODUCERS, "read-kafka", "member-kafka", "member-kafka", "member-silent", "member-silent")
GRPC = ("produce-grpc", "read-grpc", "produce-odd", "read-odd", "churn-topics", "churn-topics")
PULSAR = ("produce-pulsar", "consume-pulsar", "consume-pulsar", "consume-pulsar")
TRANSACTIONS = ("produce-transactional", "produce-transactional", "read-committed", "copy-committed", "copy-committed")
SHARES = ("share-kafka", "share-kafka")
CLEANED = ("produce-cleaned", "produce-cleaned", "read-cleaned")
MORE = ("produce-librdkafka", "produce-java", "member-kafka", "member-silent", "member-rest")

SIZES = {
    "short": Size(
        servers={"k1": "kafka", "k2": "kafka", "r1": "rest"},
        clients=(
            *PRODUCERS,
            *TRANSACTIONS,
            "read-kafka",
            "member-kafka",
            "member-silent",
            "member-silent",
            "member-silent",
            "produce-rest",
            "define",
        ),
    ),
    "small": Size(
        servers={"k1": "kafka", "k2": "kafka", "r1": "rest", "g1": "grpc"},
        workers=("w1",),
        clients=(
            *KAFKA,
            *TRANSACTIONS,
            *SHARES,
            *CLEANED,
            *GRPC,
            "produce-franz",
            "produce-rest",
            "member-rest",
            "define",
            "sql",
        ),
    ),
    "whole": Size(
        servers={"k1": "kafka", "k2": "kafka", "k3": "kafka", "p1": "pulsar", "r1": "rest", "g1": "grpc"},
        workers=("w1", "w2"),
        clients=(
            *KAFKA,
            *TRANSACTIONS,
            *SHARES,
            *CLEANED,
            *GRPC,
            *PULSAR,
            *MORE,
            "produce-franz",
            "produce-rest",
            "member-rest",
            "define",
            "sql",
            "pyiceberg",
        ),
    ),
}
"""`short`: for each change, without Spark. `small`: everything except Pulsar and Java, one worker. `whole`: for hours, 24 GB of memory."""
