"""Indexes: map a partition's offsets to the slices that hold them."""
