"""The limit of an import's speed."""


class Pace:
    """Says how long to wait after each response, so that all lanes together read no more than a limit."""

    def __init__(self, bytes_per_s: int) -> None:
        """`bytes_per_s` 0: no limit."""
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def wait_s(self, size_bytes: int, now_s: float) -> float:
        """Return the time (s) to wait before the next request, after one that brought so many bytes."""
        if not self._bytes_per_s:
            return 0.0
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
        return self._free_s - now_s
