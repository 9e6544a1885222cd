"""WAL objects: layout, sealing, reading, and keys."""
