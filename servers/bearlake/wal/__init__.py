"""WAL objects: their layout, how one is sealed, read and named."""
