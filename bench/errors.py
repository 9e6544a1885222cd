"""The error of the benchmark programs."""


class BenchError(Exception):
    """A measurement is not possible; the message gives the reason and the place to look."""
