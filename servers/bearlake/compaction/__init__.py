"""Compaction: WAL slices become Parquet data files of the stream's table, and the index is swapped to them."""
