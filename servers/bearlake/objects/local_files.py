"""Durable files, blocking: the system calls of the local store. Runs on its threads.

A put makes an anonymous file in the target folder (`O_TMPFILE`), writes, syncs it, links it under its key and syncs the
folder. `link` never replaces a name, and an anonymous file disappears after a crash. If the file system or /proc does
not support this (NFS, macOS), the put uses a file named `.tmp-…`; the listing hides such files and removes old ones.

Measured on ext4, µs per put of 64 KiB / 1 MiB / 8 MiB (median, two syncs each; in brackets without syncs):
create, link, unlink 430 / 1117 / 5097 (16 / 167 / 1137); create, renameat2 448 / 1314 / 5124; anonymous, link
384 / 1107 / 4975 (14 / 136 / 1081); in place and not atomic 349 / 1032 / 4997. The syncs dominate; the atomic name is free.
"""

import errno
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from bearlake import kernel
from bearlake.objects import Buffer

TEMPORARY_PREFIX = ".tmp-"
_WRITEV_BUFFERS_MAX = 1024  # IOV_MAX of Linux and macOS
_FOLDERS_REMEMBERED_MAX = 4096
_FOLDER_ATTEMPTS_MAX = 10
_ANONYMOUS_FLAGS = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
_NAMED_FLAGS = os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
_FILE_MODE = 0o640
_FOLDER_MODE = 0o750


class FileCalls:
    """The system calls whose order determines durability; tests pass a recording subclass."""

    has_anonymous_files = hasattr(os, "O_TMPFILE")

    def create(self, path: str, *, anonymous: bool) -> int:
        """Open a new file for writing: unnamed in the folder `path`, or named `path`. Returns its descriptor."""
        return os.open(path, _ANONYMOUS_FLAGS if anonymous else _NAMED_FLAGS, _FILE_MODE)

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> int:
        """Write a prefix of `parts` (at most 1024 of them); returns the number of bytes taken."""
        return os.writev(descriptor, parts)

    def sync_file(self, descriptor: int) -> None:
        """Flush the file's content and size to the disk."""
        os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)

    def link(self, source: str, target: str) -> None:
        """Link the file `source` as `target`; `FileExistsError` if the name is taken."""
        os.link(source, target)

    def link_anonymous(self, descriptor: int, target: str) -> None:
        """Link the unnamed file `descriptor` as `target`, an absolute path; `FileExistsError` if the name is taken."""
        # Python follows the /proc link (AT_SYMLINK_FOLLOW) only if a folder descriptor is given; an absolute path ignores it.
        os.link(f"/proc/self/fd/{descriptor}", target, dst_dir_fd=descriptor, follow_symlinks=True)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Create one folder."""
        os.mkdir(path, _FOLDER_MODE)

    def sync_folder(self, path: str) -> None:
        """Flush the folder's names to the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class DurableFolder:
    """Puts and deletes files under `root`, an existing folder. Thread-safe."""

    def __init__(self, root: Path, *, fsync: bool, calls: FileCalls) -> None:
        self._root = str(root)
        self._fsync = fsync
        self._calls = calls
        self._lock = threading.Lock()
        self._durable_folders: set[str] = set()
        self._anonymous = calls.has_anonymous_files and self._can_link_anonymous_files()
        self._in_one_call = type(calls) is FileCalls  # a recording subclass must see every call

    def put(self, key: str, parts: Sequence[Buffer], buffers_released: Callable[[], None]) -> None:
        """Create the file `key`; calls `buffers_released` once `parts` are no longer needed.

        Raises:
            FileExistsError: the name is taken; the existing file and its name are durable.
            NotADirectoryError, IsADirectoryError: a folder of the key is an object, or the key is a folder.
            OSError: any other error; the object may exist.
        """
        target = f"{self._root}/{key}"
        folder = target[: target.rindex("/")]
        if self._anonymous and self._in_one_call and len(parts) <= kernel.FILE_PARTS_MAX:
            self._put_in_one_call(folder, target, parts)
            buffers_released()
            return
        descriptor, temporary = self._create(folder)
        try:
            self._write(descriptor, parts)
            buffers_released()
            if self._fsync:
                self._calls.sync_file(descriptor)
            try:
                self._link(descriptor, temporary, target, folder)
            except FileExistsError:
                self._refuse_existing(target, folder)
                raise
        finally:
            os.close(descriptor)
            if temporary is not None:
                with suppress(FileNotFoundError):
                    self._calls.unlink(temporary)
        if self._fsync:
            self._calls.sync_folder(folder)

    def _put_in_one_call(self, folder: str, target: str, parts: Sequence[Buffer]) -> None:
        """Run the same steps in C (`kernel.put_file`), which releases the GIL once instead of at every system call."""
        for attempt in range(_FOLDER_ATTEMPTS_MAX):
            try:
                self._ensure_folder(folder)
                return kernel.put_file(folder, target, parts, self._fsync)
            except FileNotFoundError:  # the folder was empty and a deletion has just removed it
                self._forget_folder(folder)
                if attempt == _FOLDER_ATTEMPTS_MAX - 1:
                    raise
            except FileExistsError:
                self._refuse_existing(target, folder)
                raise
        raise AssertionError("unreachable")

    def _refuse_existing(self, target: str, folder: str) -> None:
        """The name is taken, perhaps by an attempt that has just created it: a file that is reported as existing must be durable too."""
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, "a folder of keys") from None
        if self._fsync:
            self._calls.sync_folder(folder)

    def remove(self, keys: Sequence[str]) -> None:
        """Delete those of the files that exist, then folders that became empty.

        A deletion is not synced: after a power cut some files may be back, and the sweeper deletes them again.
        """
        folders = set()
        for key in keys:
            target = f"{self._root}/{key}"
            try:
                self._calls.unlink(target)
            except (FileNotFoundError, NotADirectoryError):
                continue
            folders.add(target[: target.rindex("/")])
        for folder in folders:
            self._remove_empty(folder)

    def _create(self, folder: str) -> tuple[int, str | None]:
        """Create a file for writing; returns its descriptor and its temporary path (None if it is anonymous)."""
        temporary = None if self._anonymous else f"{folder}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        path = folder if temporary is None else temporary
        for attempt in range(_FOLDER_ATTEMPTS_MAX):
            try:
                self._ensure_folder(folder)
                return self._calls.create(path, anonymous=temporary is None), temporary
            except FileNotFoundError:  # the folder was empty and a deletion has just removed it
                self._forget_folder(folder)
                if attempt == _FOLDER_ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("unreachable")

    def _link(self, descriptor: int, temporary: str | None, target: str, folder: str) -> None:
        for attempt in range(_FOLDER_ATTEMPTS_MAX):
            try:
                if attempt:
                    self._ensure_folder(folder)
                if temporary is not None:
                    return self._calls.link(temporary, target)
                return self._calls.link_anonymous(descriptor, target)
            except FileNotFoundError:  # as in _create: an anonymous file does not keep its folder
                self._forget_folder(folder)
                if attempt == _FOLDER_ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("unreachable")

    def _write(self, descriptor: int, parts: Sequence[Buffer]) -> None:
        total = sum(map(len, parts))
        if not total or (
            len(parts) <= _WRITEV_BUFFERS_MAX and (written := self._calls.write(descriptor, parts)) == total
        ):
            return
        rest = [memoryview(part) for part in parts]
        if len(parts) > _WRITEV_BUFFERS_MAX:
            written = 0
        while True:
            rest = list(_without_first(rest, written))
            if not rest:
                return
            written = self._calls.write(descriptor, rest[:_WRITEV_BUFFERS_MAX])

    def _ensure_folder(self, folder: str) -> None:
        """Create `folder` and its parents below the root; their names are durable when this returns."""
        if folder in self._durable_folders or folder == self._root:
            return
        with self._lock:
            if len(self._durable_folders) >= _FOLDERS_REMEMBERED_MAX:
                self._durable_folders.clear()
            parent = self._root
            for part in folder[len(self._root) + 1 :].split("/"):
                path = f"{parent}/{part}"
                if path not in self._durable_folders:
                    try:
                        self._calls.make_folder(path)
                    except FileExistsError:
                        if not os.path.isdir(path):
                            raise NotADirectoryError(errno.ENOTDIR, "an object, not a folder of keys") from None
                    if self._fsync:  # also if it existed: its creator may not have synced it yet
                        self._calls.sync_folder(parent)
                    self._durable_folders.add(path)
                parent = path

    def _forget_folder(self, folder: str) -> None:
        with self._lock:
            while folder != self._root:
                self._durable_folders.discard(folder)
                folder = folder[: folder.rindex("/")]

    def _remove_empty(self, folder: str) -> None:
        with self._lock:
            while folder != self._root:
                try:
                    os.rmdir(folder)
                except OSError:  # not empty, or already removed
                    return
                self._durable_folders.discard(folder)
                folder = folder[: folder.rindex("/")]

    def _can_link_anonymous_files(self) -> bool:
        probe = f"{self._root}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            descriptor = self._calls.create(self._root, anonymous=True)
            try:
                self._calls.link_anonymous(descriptor, probe)
            finally:
                os.close(descriptor)
            self._calls.unlink(probe)
        except OSError:
            return False
        return True


def _without_first(parts: Sequence[memoryview], count: int) -> Iterator[memoryview]:
    """Yield `parts` without their first `count` bytes and without empty parts."""
    for part in parts:
        if count >= len(part):
            count -= len(part)
        else:
            yield part[count:]
            count = 0
