"""All targets, in groups that run in one process each."""

import importlib
from collections.abc import Sequence

from fuzz.target import Target

GROUPS: dict[str, tuple[str, ...]] = {
    "sanitized": (
        "kernel",
        "kernel_kafka",
        "kernel_pulsar",
        "kernel_typed",
        "kernel_protobuf",
        "kernel_json",
        "records",
    ),
    "decoders": ("kafka_codec", "groups_membership", "pulsar", "bodies", "logins", "grpc"),
    "schemas": ("schemas", "typed_schemas", "typed_protobuf"),
    "routes": ("http",),
    "servers": ("servers",),
}
"""Modules of `fuzz.targets` by group."""

SANITIZED = frozenset({"sanitized"})
"""Groups that run with the sanitized kernel: what they decode, the kernel decodes."""

SANITIZED_SHARE = 0.3
"""Share of sanitized targets in the inputs of a run: sanitizers make inputs take five times as long."""

BROKEN = "broken"
"""A group whose targets break their promises; it is in no run."""


def targets(group: str) -> Sequence[Target]:
    """Return the targets of a group, in order."""
    modules = (BROKEN,) if group == BROKEN else GROUPS[group]
    return [target for name in modules for target in targets_of(name)]


def targets_of(module: str) -> Sequence[Target]:
    """Return the targets of a module of `fuzz.targets`, in order."""
    found: Sequence[Target] = importlib.import_module(f"fuzz.targets.{module}").TARGETS
    return found
