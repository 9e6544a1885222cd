"""The commands of watched topic lists: WATCH_TOPIC_LIST, WATCH_TOPIC_LIST_CLOSE."""

from bearlake.errors import Overloaded
from bearlake.protocols.pulsar import commands
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
)
from bearlake.protocols.pulsar.watchers import Watcher


async def watch(connection: Connection, request: CommandWatchTopicList) -> bytes:
    """Handle WATCH_TOPIC_LIST. Raises the error for the answer."""
    limit = connection.context.settings.watchers_max
    former = connection.watchers.pop(request.watcher_id, None)
    if former is not None:
        connection.context.watchers.remove(former)
    if len(connection.watchers) >= limit:
        raise Overloaded(f"the connection has reached its limit of {limit} topic list watchers")
    watcher = Watcher(connection, request)
    connection.watchers[watcher.id] = watcher
    try:
        await connection.context.watchers.add(watcher)
    except BaseException:
        if connection.watchers.get(watcher.id) is watcher:
            del connection.watchers[watcher.id]
        raise
    known = watcher.known
    found = known.topics_hash
    is_same = request.HasField("topics_hash") and request.topics_hash == found
    body = CommandWatchTopicListSuccess(
        request_id=request.request_id,
        watcher_id=watcher.id,
        topic=() if is_same else known.names,
        topics_hash=found,
    )
    return commands.frame("watch_topic_list_success", body)


def unwatch(connection: Connection, request: CommandWatchTopicListClose) -> None:
    """Handle WATCH_TOPIC_LIST_CLOSE."""
    watcher = connection.watchers.pop(request.watcher_id, None)
    if watcher is not None:
        connection.context.watchers.remove(watcher)
    connection.send(commands.success(request.request_id))
