"""Imports of Pulsar topics: entries become record batches, in order; batches say which entry they were (decision 297)."""
