"""The one error of the benchmark programs."""


class BenchError(Exception):
    """A measurement cannot be made; the message says what happened and where to look."""
