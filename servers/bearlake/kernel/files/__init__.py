"""Durable files.

put   a file under a new name, in one call
"""

FILE_PARTS_MAX = 64
"""Buffers that `put_file` takes at most."""
