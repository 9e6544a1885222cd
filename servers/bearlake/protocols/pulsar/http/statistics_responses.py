"""Statistics of topics and subscriptions in the form of Pulsar's admin API.

Responses omit rates, which are not measured (`/metrics` has counters). Each server reports only the publishers connected to it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bearlake.metadata.model import PartitionBounds, PartitionKey, PartitionUsage, stream_number
from bearlake.protocols.pulsar import message_ids
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.producers import Producer
from bearlake.protocols.pulsar.producing import DEDUPLICATION
from bearlake.protocols.pulsar.proto.commands_pb2 import ProducerAccessMode
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams import configs
from bearlake.streams.subscriptions.model import ConsumerStats, SubscriptionStats

_COUNTS = ("msgInCounter", "storageSize", "msgOutCounter", "bytesOutCounter")
_SUBSCRIPTION_COUNTS = (
    "msgBacklog",
    "unackedMessages",
    "msgDelayed",
    "msgBacklogNoDelayed",
    "msgOutCounter",
    "bytesOutCounter",
    "nonContiguousDeletedMessagesRanges",
)


async def last_message(context: PulsarContext, topic: Topic) -> dict[str, int]:
    """The id of a topic's last message; entry -1 if the topic is empty. Raises `NotFound`, `Unavailable`."""
    last = await context.last_messages.find(topic.partition)
    entry = -1 if last.entry_id == message_ids.NONE else last.entry_id
    answer = {
        "ledgerId": last.ledger_id,
        "entryId": entry,
        "partitionIndex": topic.index if topic.is_partitioned else -1,
    }
    if last.batch_index >= 0:
        answer["batchIndex"] = last.batch_index
    return answer


def topic_stats(
    topic: Topic,
    bounds: PartitionBounds,
    usage: PartitionUsage,
    producers: Iterable[Producer],
    found: Iterable[SubscriptionStats],
    owner: str,
) -> dict[str, Any]:
    """The statistics of one partition. `storageSize` is the stored size in bytes of all readable data."""
    subscriptions = {subscription.name: _subscription(subscription) for subscription in found}
    is_deduplicated = configs.value(topic.view.stream.configs, DEDUPLICATION).lower() == "true"
    return {
        "msgInCounter": bounds.end,
        "msgOutCounter": sum(subscription["msgOutCounter"] for subscription in subscriptions.values()),
        "bytesOutCounter": sum(subscription["bytesOutCounter"] for subscription in subscriptions.values()),
        "storageSize": usage.size_bytes,
        "publishers": [_publisher(producer) for producer in producers],
        "subscriptions": subscriptions,
        "deduplicationStatus": "Enabled" if is_deduplicated else "Disabled",
        "ownerBroker": owner,
    }


def internal_stats(
    partition: PartitionKey, bounds: PartitionBounds, subscriptions: Iterable[SubscriptionStats], *, is_terminated: bool
) -> dict[str, Any]:
    """The partition as one ledger. Each message counts as an entry, because entry ids are offsets."""
    ledger, count = stream_number(partition), bounds.end - bounds.start
    cursors = {
        subscription.name: {
            "markDeletePosition": f"{ledger}:{subscription.mark_delete - 1}",
            "readPosition": f"{ledger}:{subscription.read_offset}",
            "numberOfEntriesSinceFirstNotAckedMessage": bounds.end - subscription.mark_delete,
        }
        for subscription in subscriptions
        if subscription.is_durable
    }
    return {
        "entriesAddedCounter": bounds.end,
        "numberOfEntries": count,
        "lastConfirmedEntry": f"{ledger}:{bounds.end - 1}",
        "state": "Terminated" if is_terminated else "LedgerOpened",
        "ledgers": [{"ledgerId": ledger, "entries": count}],
        "cursors": cursors,
    }


def summed(partitions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The statistics of a partitioned topic: the sums of its partitions' counts, and all their publishers and consumers."""
    whole: dict[str, Any] = {**dict.fromkeys(_COUNTS, 0), "publishers": [], "subscriptions": {}}
    for partition in partitions:
        for key in _COUNTS:
            whole[key] += partition[key]
        whole["publishers"] += partition["publishers"]
        whole["deduplicationStatus"] = partition["deduplicationStatus"]
        for name, found in partition["subscriptions"].items():
            known = whole["subscriptions"].get(name)
            whole["subscriptions"][name] = dict(found) if known is None else _added(known, found)
    return whole


def _added(known: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    # Prefer a partition with consumers: its subscription type is the one in use.
    first = known if known["consumers"] or not other["consumers"] else other
    counts = {key: known[key] + other[key] for key in _SUBSCRIPTION_COUNTS}
    return {**first, **counts, "consumers": [*known["consumers"], *other["consumers"]]}


def _publisher(producer: Producer) -> dict[str, Any]:
    return {
        "producerId": producer.id,
        "producerName": producer.name,
        "accessMode": ProducerAccessMode.Name(producer.request.producer_access_mode),
        "address": producer.connection.peer,
        "connectedSince": producer.since.isoformat(timespec="milliseconds"),
        "clientVersion": producer.connection.client_version,
        "metadata": {pair.key: pair.value for pair in producer.request.metadata},
    }


def _subscription(stats: SubscriptionStats) -> dict[str, Any]:
    return {
        "type": stats.type.value if stats.type is not None else "None",
        "durable": stats.is_durable,
        "msgBacklog": stats.backlog_count,
        "msgBacklogNoDelayed": max(0, stats.backlog_count - stats.delayed_count),
        "unackedMessages": stats.unacknowledged_count,
        "msgDelayed": stats.delayed_count,
        "msgOutCounter": sum(consumer.delivered_message_count for consumer in stats.consumers),
        "bytesOutCounter": sum(consumer.delivered_bytes for consumer in stats.consumers),
        "nonContiguousDeletedMessagesRanges": stats.range_count,
        "subscriptionProperties": dict(stats.properties),
        "activeConsumerName": next((consumer.name for consumer in stats.consumers if consumer.is_active), None),
        "consumers": [_consumer(consumer) for consumer in stats.consumers],
    }


def _consumer(stats: ConsumerStats) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "consumerName": stats.name,
        "availablePermits": stats.permits,
        "unackedMessages": stats.unacknowledged_count,
        "blockedConsumerOnUnackedMsgs": stats.is_blocked,
        "msgOutCounter": stats.delivered_message_count,
        "bytesOutCounter": stats.delivered_bytes,
        "metadata": dict(stats.metadata),
        **stats.origin,
    }
    if stats.slot_ranges:
        shown["keyHashRanges"] = [f"[{start}, {end - 1}]" for start, end in stats.slot_ranges]
    return shown
