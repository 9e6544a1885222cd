"""Pulsar's entries in the native kernel and in its Python twin (`pulsar` has the functions)."""

from fuzz.targets.pulsar import KERNEL_TARGETS

TARGETS = KERNEL_TARGETS
