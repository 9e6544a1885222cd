"""The wire format: `metadata.proto`, `commands.proto`, and the Python modules that `generate.py` creates from them (checked in)."""
