"""The topics of an export: those of the source whose names match its patterns, with the configs that are set on them."""

from collections.abc import Sequence

from typing_extensions import override

from bearlake.importing.cluster import SourceCluster, SourceTopic
from bearlake.importing.progress import Topics

_OWN = ("import.", "http.")
"""Configs that are the state of a stream here, such as where it was imported from."""


class ExportSelection(Topics):
    """Looks for topics, and remembers those that it has found."""

    def __init__(self, cluster: SourceCluster, patterns: Sequence[str], ledger_topic: str) -> None:
        """`patterns`: regular expressions of whole names of topics. The ledger of other exports, `ledger_topic`, is never one of them."""
        self._cluster = cluster
        self._patterns = patterns
        self._ledger_topic = ledger_topic
        self._configs: dict[str, dict[str, str]] = {}

    @property
    @override
    def configs(self) -> dict[str, dict[str, str]]:
        return self._configs

    @override
    async def look(self) -> list[SourceTopic]:
        """Return the topics that match now, by name; reads the configs of those that are new. Raises `Invalid`, `Denied`, `Unavailable`."""
        topics = [topic for topic in await self._cluster.topics(self._patterns) if topic.name != self._ledger_topic]
        names = [topic.name for topic in topics if topic.name not in self._configs]
        if names:
            for name, configs in (await self._cluster.configs(names)).items():
                self._configs[name] = {key: value for key, value in configs.items() if not key.startswith(_OWN)}
        return topics
