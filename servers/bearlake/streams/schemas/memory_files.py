"""Anonymous files: they need no writable folder and leave nothing behind when the process is killed.

Source: memfd_create(2); on other systems than Linux, a temporary file without a name.
"""

import os
import tempfile
from typing import BinaryIO


def memory_file(content: bytes = b"") -> BinaryIO:
    """Create a file with this content. Code in this process can open it with `path_of`; closing the file deletes it."""
    if hasattr(os, "memfd_create"):
        file: BinaryIO = os.fdopen(os.memfd_create("bearlake"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(content)
    file.flush()
    file.seek(0)
    return file


def path_of(file: BinaryIO) -> str:
    """Return the path under which this process can open the file again."""
    return f"/dev/fd/{file.fileno()}"
