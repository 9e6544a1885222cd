"""Create a durable file in one call."""

import os
from collections.abc import Sequence

from bearlake.kernel.buffers import Buffer
from bearlake.kernel.files import FILE_PARTS_MAX

_FILE_MODE = 0o640


def put_file(folder: str, target: str, parts: Sequence[Buffer], sync: bool, /) -> None:
    """Write at most `FILE_PARTS_MAX` buffers to the new file `target`, an absolute path in the existing `folder`; never replace a file.

    The file has no name until it is complete (`O_TMPFILE`, then `link`). With `sync`, its content and its name are on disk when this
    returns. The native kernel releases the GIL once for the whole call.

    Raises:
        FileExistsError: the name is taken; nothing was replaced.
        FileNotFoundError: no such folder.
        OSError: any other failure, such as a file system without anonymous files; the file may exist.
    """
    if len(parts) > FILE_PARTS_MAX:
        raise ValueError(f"put_file() takes at most {FILE_PARTS_MAX} buffers")
    descriptor = os.open(folder, os.O_WRONLY | os.O_CLOEXEC | os.O_TMPFILE, _FILE_MODE)
    try:
        rest = [memoryview(part).cast("B") for part in parts if len(part)]
        while rest:
            written = os.writev(descriptor, rest)
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][written:]
        if sync:
            os.fdatasync(descriptor)
        os.link(f"/proc/self/fd/{descriptor}", target, dst_dir_fd=descriptor, follow_symlinks=True)
    finally:
        os.close(descriptor)
    if sync:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
