"""Features of Pulsar by client, each with the tests that show it: `docs/pulsar-clients.md` is generated from this table."""

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature: the Python tests, and the steps of the Java and Go programs, that show it; empty if none does."""

    title: str
    python: tuple[str, ...]
    java: tuple[str, ...]
    go: tuple[str, ...]


def feature(title: str, *steps: str, python: str = "", java: tuple[str, ...] = (), go: tuple[str, ...] = ()) -> Feature:
    """`steps`: steps of both programs; `java`, `go`: steps of one program; `python`: the ends of the names of tests."""
    return Feature(title, tuple(f"test_{name}" for name in python.split()), (*steps, *java), (*steps, *go))


FEATURES = (
    feature(
        "Exclusive, cumulative acknowledgement",
        "exclusive",
        python="a_second_exclusive_consumer_is_refused batches_come_back_in_order_with_ids_that_compare",
    ),
    feature(
        "Shared, negative acknowledgement, redelivery counts",
        "shared",
        python="a_negative_acknowledgement_brings_a_message_back",
    ),
    feature("Failover", "failover", python="failover_passes_to_the_next_consumer"),
    feature("Failover, several partitions", "failover-partitions", python="failover_divides_partitions"),
    feature("Key_Shared", "key-shared", python="key_shared_keeps_the_order_of_each_key"),
    feature(
        "Key_Shared with chosen ranges (sticky)",
        "key-shared-sticky",
        python="key_shared_with_ranges_that_consumers_choose",
    ),
    feature(
        "Key_Shared while consumers come and go", "key-shared-changing", python="key_shared_while_consumers_come_and_go"
    ),
    feature(
        "acknowledgement inside batches, with receipts",
        "batch-index-acknowledgement",
        python="messages_of_a_batch_are_acknowledged_one_by_one",
    ),
    feature("acknowledgement timeout", java=("acknowledgement-timeout",)),
    feature("dead letters", "dead-letters", python="a_message_that_fails_too_often_goes_to_the_dead_letters"),
    feature("retry letters", java=("dead-letters",), go=("retry-letters",)),
    feature("delayed messages", "delayed", python="a_delayed_message_is_delivered_in_time"),
    feature("delayed messages over a restart of the server", java=("delayed-before", "delayed-after")),
    feature("seek by id and time", "seek", python="seek_by_id_and_time"),
    feature("readers, from either end and from an id", "reader", python="a_reader_goes_to_the_end_and_back"),
    feature("readers, seek by time", "reader-seek", python="a_reader_seeks_by_time"),
    feature(
        "table view, with later messages and null values",
        "table-view",
        python="a_table_view_receives_later_messages",
    ),
    feature("pattern, with topics created later", "pattern", python="a_pattern_and_a_list_of_topics"),
    feature("several topics", "several-topics", python="a_pattern_and_a_list_of_topics"),
    feature("partitioned topic", "partitioned", python="partitioned_topics"),
    feature(
        "key, ordering key, properties, times, sequence id, producer name",
        "fields",
        python="messages_keep_all_their_fields",
    ),
    feature("null values and keys of bytes", java=("fields",)),
    feature("compression: LZ4, ZLIB, ZSTD, SNAPPY", "compression", python="messages_keep_all_their_fields"),
    feature("encryption", "encryption", python="an_encrypted_message_is_for_those_who_have_the_key"),
    feature("large message in chunks", "chunks", python="a_large_message_in_chunks"),
    feature(
        "schema JSON; an incompatible schema is refused",
        "schema",
        python="a_schema_is_used_and_an_incompatible_schema_is_refused",
    ),
    feature("schema Avro, AUTO_CONSUME, AUTO_PRODUCE", java=("schema",)),
    feature("schema of bytes", go=("schema-bytes",)),
    feature("exclusive producer", "exclusive-producer", python="an_exclusive_producer_keeps_others_out"),
    feature("exclusive producer that waits", "waiting-producer", python="an_exclusive_producer_waits"),
    feature("exclusive producer that fences", python="an_exclusive_producer_fences", java=("fencing-producer",)),
    feature(
        "deduplication of numbered messages", "deduplication", python="a_producer_goes_on_where_its_name_has_come_to"
    ),
    feature("transactions are refused at once", "no-transactions"),
)


def table(python: str, java: str, go: str) -> str:
    """The rows as Markdown, below the clients' versions."""
    head = [f"| | Python {python} | Java {java} | Go {go} |", "|---|---|---|---|"]
    rows = [f"| {row.title} | {_cell(row.python)} | {_cell(row.java)} | {_cell(row.go)} |" for row in FEATURES]
    return "\n".join([*head, *rows]) + "\n"


def _cell(shown_by: tuple[str, ...]) -> str:
    return "yes" if shown_by else "-"
