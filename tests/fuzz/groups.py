"""All targets, in groups that run in one process each."""

import importlib
from collections.abc import Sequence

from fuzz.target import Target

SANITIZED = ("kernel", "kernel_kafka", "kernel_pulsar", "records")
"""Modules of `fuzz.targets` whose entries are those of the kernel: they run with the sanitized kernel."""

GROUPS: dict[str, tuple[str, ...]] = {
    "sanitized": SANITIZED,
    "decoders": ("kafka_codec", "groups_membership", "pulsar", "bodies", "logins", "grpc"),
    "schemas": ("schemas",),
    "routes": ("http",),
    "servers": ("servers",),
}
"""Groups of modules."""


def targets(group: str) -> Sequence[Target]:
    """Return the targets of a group, in order."""
    return [one for name in GROUPS[group] for one in importlib.import_module(f"fuzz.targets.{name}").TARGETS]
