"""The sizes of a run: how many servers, workers and clients of which kinds."""

from nemesis.world import Size

KAFKA_CLIENTS = (
    "produce-librdkafka",
    "produce-plain",
    "read-kafka",
    "member-kafka",
    "member-kafka",
    "member-silent",
    "member-silent",
)

SIZES = {
    "short": Size(
        servers={"k1": "kafka", "k2": "kafka", "r1": "rest"},
        clients=("produce-librdkafka", "produce-plain", "read-kafka", "member-kafka", "member-silent", "member-silent", "produce-rest"),
        with_standby=True,
    ),
    "small": Size(
        servers={"k1": "kafka", "k2": "kafka", "r1": "rest", "g1": "grpc"},
        workers=("w1",),
        clients=(*KAFKA_CLIENTS, "produce-franz", "produce-rest", "member-rest", "produce-grpc", "read-grpc", "produce-odd",
                 "read-odd", "churn-topics", "churn-topics", "sql"),
    ),
    "whole": Size(
        servers={"k1": "kafka", "k2": "kafka", "k3": "kafka", "p1": "pulsar", "r1": "rest", "g1": "grpc"},
        workers=("w1", "w2"),
        clients=(
            *KAFKA_CLIENTS, "produce-librdkafka", "produce-java", "produce-franz", "member-kafka", "member-silent", "read-grpc",
            "produce-pulsar", "consume-pulsar", "consume-pulsar", "consume-pulsar", "produce-rest", "member-rest", "member-rest",
            "produce-grpc", "produce-odd", "read-odd", "churn-topics", "churn-topics", "sql", "pyiceberg",
        ),
    ),
}  # fmt: skip
"""`short`: for each change, without Spark. `small`: everything but Pulsar and Java, one worker. `whole`: for hours, 24 GB of memory."""
