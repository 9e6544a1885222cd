"""The outcomes of Produce requests that were taken together, and their responses."""

from bearlake.kernel.kafka import ProducePlace, ProduceResult
from bearlake.kernel.kafka.produce_response import encode_produce_response
from bearlake.kernel.log import ProduceOutcome
from bearlake.kernel.log.results import Results


class ProduceResults(Results):
    """Produce requests that were taken together: the outcomes of their batches, and what their responses name."""

    __slots__ = ("_first", "_places", "_requests", "_version")

    def __init__(self, outcome: ProduceOutcome, /) -> None:
        """No requests yet. `outcome`: as in `Results`."""
        super().__init__(0, outcome)
        self._first = outcome
        self._version = 0
        self._requests: list[tuple[int, int]] = []
        self._places: list[ProducePlace] = []

    @property
    def request_count(self) -> int:
        """Requests that were taken."""
        return len(self._requests)

    def frames(self) -> bytes | None:
        """Return the response frames of all requests, back to back; None unless every batch was appended (verdict 0)."""
        if any(verdict for verdict, _, _ in self):
            return None
        frames = []
        for correlation_id, places, outcomes in self.requests():
            results: list[ProduceResult] = [
                (topic, index, 0, base_offset, -1, start_offset)
                for (topic, index), (_, base_offset, start_offset) in zip(places, outcomes, strict=True)
            ]
            frames.append(encode_produce_response(self._version, correlation_id, results, 0))
        return b"".join(frames)

    def requests(self) -> list[tuple[int, list[ProducePlace], list[ProduceOutcome]]]:
        """Return each request's correlation id, and the places and outcomes of its batches."""
        found = []
        start = 0
        outcomes = list(self)
        for correlation_id, count in self._requests:
            end = start + count
            found.append((correlation_id, self._places[start:end], outcomes[start:end]))
            start = end
        return found

    def check_unused(self) -> None:
        """Raise `ValueError` if the call has requests. For `take_produces` only."""
        if self._requests:
            raise ValueError("the call has requests")

    def clear_requests(self) -> None:
        """Remove the requests. For `take_produces` only."""
        self._requests, self._places = [], []
        self._reset(0, self._first)

    def set_requests(self, version: int, requests: list[tuple[int, int]], places: list[ProducePlace]) -> None:
        """Set the requests, as (correlation id, batch count). For `take_produces` only."""
        self.check_unused()
        self._version = version
        self._requests = requests
        self._places = places
        self._reset(len(places), self._first)
