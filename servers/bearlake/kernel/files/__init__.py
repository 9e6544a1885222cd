"""Durable files.

put   create a durable file in one call
"""

FILE_PARTS_MAX = 1024
"""Maximum number of buffers that `put_file` takes."""
