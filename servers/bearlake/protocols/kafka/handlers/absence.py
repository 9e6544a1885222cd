"""Topics and partitions that this server does not know: deleted, or not known yet.

A server follows the commit log a little behind. Before a request is told that a topic id, or a partition, does not exist, this server
catches up with the store, once per request. Topics that are named by their name are looked up in the store by `KafkaTopics.find`.
"""

from collections.abc import Callable
from functools import partial

from bearlake.errors import Overloaded, Unavailable
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.catalog import StreamView
from bearlake.streams.internal_topics import KafkaTopics


class Absence:
    """Decides, for one request, whether what this server does not know is absent."""

    def __init__(self, topics: KafkaTopics) -> None:
        self._topics = topics
        self._result: ErrorCode | None = None
        """What a topic that is still unknown is answered with, after catching up."""

    async def by_id(self, topic_id: bytes) -> StreamView | ErrorCode:
        """Return the topic with this id; UNKNOWN_TOPIC_ID, or KAFKA_STORAGE_ERROR if this server cannot know."""
        return await self._known(partial(self._topics.peek_id, topic_id))

    async def by_number(self, number: int) -> StreamView | ErrorCode:
        """Return the topic with this stream number; the same errors as `by_id`."""
        return await self._known(partial(self._topics.peek_number, number))

    async def grown(self, view: StreamView) -> StreamView | ErrorCode:
        """Return the current view of a topic that seems to lack a partition; KAFKA_STORAGE_ERROR if this server cannot know."""
        code = await self._caught_up()
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            return code
        return self._topics.peek_number(view.stream.number) or view

    async def _known(self, peek: Callable[[], StreamView | None]) -> StreamView | ErrorCode:
        view = peek()
        if view is None:
            code = await self._caught_up()
            return peek() or code
        return view

    async def _caught_up(self) -> ErrorCode:
        if self._result is None:
            try:
                await self._topics.catch_up()
                self._result = ErrorCode.UNKNOWN_TOPIC_ID
            except (Unavailable, Overloaded):
                self._result = ErrorCode.KAFKA_STORAGE_ERROR
        return self._result
