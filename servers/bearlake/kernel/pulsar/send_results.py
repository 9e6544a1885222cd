"""The outcomes of SENDs that were taken together, and their receipts."""

from bearlake.kernel.log import ProduceOutcome
from bearlake.kernel.log.results import Results
from bearlake.kernel.pulsar import SendIds
from bearlake.kernel.pulsar.sends import has_receipt, receipt


class SendResults(Results):
    """SENDs of one producer that were taken together: the outcomes of their batches, and what their receipts name."""

    __slots__ = ("_first", "_ids")

    def __init__(self, outcome: ProduceOutcome, /) -> None:
        """No SENDs yet. `outcome`: as in `Results`."""
        super().__init__(0, outcome)
        self._first = outcome
        self._ids: list[SendIds] = []

    def receipts(self, producer_id: int, ledger_id: int, partition: int, /) -> tuple[bytes, int]:
        """Return the SEND_RECEIPT frames of the SENDs before the first that gets none, and their number: as `encode_receipts`."""
        names = (producer_id, ledger_id, partition)
        frames = []
        for ids, (verdict, base_offset, _) in zip(self._ids, self, strict=True):
            if not has_receipt(verdict, base_offset):
                break
            frames.append(receipt(names, ids, base_offset))
        return b"".join(frames), len(frames)

    def check_unused(self) -> None:
        """Raise `ValueError` if the call has SENDs. For `take_sends` only."""
        if self._ids:
            raise ValueError("the call has SENDs")

    def set_sends(self, ids: list[SendIds]) -> None:
        """Set the SENDs. For `take_sends` only."""
        self.check_unused()
        self._ids = ids
        self._reset(len(ids), self._first)
