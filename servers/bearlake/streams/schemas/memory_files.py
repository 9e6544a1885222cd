"""Anonymous files: no folder has to be writable, and nothing is left behind when the process is killed.

Source: memfd_create(2); elsewhere than on Linux, a temporary file without a name.
"""

import os
import tempfile
from typing import BinaryIO


def memory_file(content: bytes = b"") -> BinaryIO:
    """A file with that content. Other code of this process can open it by `path_of`; it ends when it is closed."""
    if hasattr(os, "memfd_create"):
        file: BinaryIO = os.fdopen(os.memfd_create("bearlake"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(content)
    file.flush()
    file.seek(0)
    return file


def path_of(file: BinaryIO) -> str:
    """The path by which this process can open the file again."""
    return f"/dev/fd/{file.fileno()}"
