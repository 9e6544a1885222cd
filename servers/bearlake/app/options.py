"""Command-line options of `bearlake up` and `bearlake serve` that are not settings."""

from dataclasses import dataclass
from pathlib import Path

from bearlake.settings.document import Given


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Options of `bearlake up`; `options` are the options that set settings (`settings.load`)."""

    data_dir: Path
    config: Path | None
    options: Given
    ready_file: Path | None
    process_count: int
    has_compactor: bool
    has_tour: bool
    exits_after_tour: bool
    stores: str = ""
    """The options by which other commands find the same stores, for a shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of `bearlake serve`; `options` are those that set settings. `role` is `kafka`, `pulsar`, `rest`, `catalog`, `grpc` or
    `compactor`."""

    role: str
    config: Path | None
    options: Given
    ready_file: Path | None
    stops_with_parent: bool = False
