"""The settings of exports: how both clusters are reached, and how records are sent."""

from dataclasses import dataclass, field
from typing import ClassVar

from bearlake.importing.settings import CopySettings, SourceSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSourceSettings(SourceSettings):
    """The cluster that `bearlake export` reads: TLS, login, and bounds of requests."""

    SECTION: ClassVar[str] = "exports.source"
    CLIENT_ID: ClassVar[str] = "bearlake-export"

    user: str = ""
    """User of PLAIN and SCRAM. It needs the rights Read, Describe and DescribeConfigs on the topics, and Describe on groups that move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTargetSettings(SourceSettings):
    """The cluster to which `bearlake export` writes: TLS, login, and bounds of requests."""

    PEER: ClassVar[str] = "the target"
    SECTION: ClassVar[str] = "exports.target"
    CLIENT_ID: ClassVar[str] = "bearlake-export"

    user: str = ""
    """User of PLAIN and SCRAM. It needs the rights Create, Read, Write, Describe and DescribeConfigs on the topics and the ledger,
    IdempotentWrite on the cluster and, to move groups, Read on them."""
    replication_factor: int = field(default=-1, metadata={"min": -1, "max": 32767})
    """Replicas of topics that the export creates; -1: as the target's brokers are set."""
    ledger_topic: str = "bearlake-exports"
    """Topic of the target in which exports keep which offsets became which. It is compacted by key, and small."""
    requests_in_flight_max: int = field(default=5, metadata={"max": 5})
    """Produce requests that a broker has not answered. Brokers recognize repeats among the newest 5 batches of a producer."""
    runs_in_memory_max: int = 1_000_000
    """Ranges without gaps that are remembered for each partition (16 bytes each). Offsets of groups before them are not moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """Exports to other clusters (`bearlake export`)."""

    source: ExportSourceSettings = field(default_factory=ExportSourceSettings)
    target: ExportTargetSettings = field(default_factory=ExportTargetSettings)
    copy: CopySettings = field(default_factory=CopySettings)
