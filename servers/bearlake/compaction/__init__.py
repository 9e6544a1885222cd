"""Compaction: converts WAL slices into Parquet data files of the stream's table, and swaps the index to these files."""
