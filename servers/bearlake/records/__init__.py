"""Record batches: attribute bits, compression, records, partitioning by key."""
