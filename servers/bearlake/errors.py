"""Error kinds, named by what the caller must do.

Every error that leaves a package is one of these, with the data that the caller needs. Foreign exceptions (drivers, object
store, operating system) are translated at the package that owns the library, chained with `raise … from`. A protocol maps each
kind to its own code in one table (`protocols/*/errors.py`).
"""


class BearlakeError(Exception):
    """Base of all kinds; never raised itself."""


class Invalid(BearlakeError):
    """The request is wrong and stays wrong: correct it. The message says what was wrong and what is expected."""


class TooLarge(Invalid):
    """A batch, request or object exceeds its limit: send less at once."""

    def __init__(self, what: str, size_bytes: int, bytes_max: int) -> None:
        super().__init__(f"{what} has {size_bytes} bytes; the limit is {bytes_max} bytes")
        self.size_bytes = size_bytes
        self.bytes_max = bytes_max


class Corrupt(Invalid):
    """Bytes contradict their checksum, magic or structure: they were damaged in transit or in the store."""


class Unsupported(Invalid):
    """A format, version or feature that this server does not speak: use one that it names."""


class NotFound(BearlakeError):
    """No such stream, partition, object, group or server: look up again before a retry."""


class AlreadyExists(BearlakeError):
    """The name is taken; nothing was changed."""


class Conflict(BearlakeError):
    """The state changed since it was read, or forbids this step: read again and decide again."""


class Fenced(BearlakeError):
    """A newer epoch of this server, producer, member or lease exists: stop, do not retry."""


class OutOfOrder(BearlakeError):
    """A producer's sequence number is not the next one: a batch before it is missing."""


class OutOfRange(BearlakeError):
    """The offset lies outside `[start, end)` of its partition: seek to one of the two."""

    def __init__(self, message: str, *, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class Denied(BearlakeError):
    """The principal may not do this: ask for the right, do not retry."""


class Overloaded(BearlakeError):
    """A bounded queue or budget is full, or a store is being upgraded, and nothing was stored: retry later, after a pause."""


class Throttled(Overloaded):
    """The client has used up its quota and nothing was done: retry after `wait_s` seconds."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Unavailable(BearlakeError):
    """A store or server did not answer in time. The step may or may not have happened: ask again with the same token."""


class OutOfRoom(Unavailable):
    """The disk of a store is full, and this step did not happen: repeat it once there is room.

    One exception: if all processes that use a SQLite store are killed before its next write, a step that lacked room only for the index of
    SQLite's log may be found done. So repeat a commit with the same token.
    """
