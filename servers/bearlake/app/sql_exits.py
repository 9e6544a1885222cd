"""What the helper of statements (`sql_helper.py`) tells the server (`sql_processes.py`), which does not import the engine."""

from struct import Struct

EXIT = Struct(">i")
"""The exit code of a statement's process, negative for a signal."""
FOLDER_BYTES_MAX = 4_096
"""Bytes of the path of a statement's folder."""
