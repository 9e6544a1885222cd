"""The wire format as files: `metadata.proto`, `commands.proto`, and what `generate.py` made of them for Python (checked in)."""
