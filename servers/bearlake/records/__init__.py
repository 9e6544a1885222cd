"""Record batches as values: attribute bits, compression, records."""
