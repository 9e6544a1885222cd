"""Transactions over HTTP: list the open ones, describe one, and abort one that hangs.

An open transaction holds back readers of committed records and compaction in its partitions. An abort names producer id and epoch, as a
description shows them, so a request that arrives late does not abort a later transaction (I12).
"""

from aiohttp import web

from bearlake.errors import Conflict, Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.metadata.transactions import Transaction
from bearlake.serving.admin import models
from bearlake.streams.transactions import TransactionRefusal, TransactionService


class TransactionRoutes:
    """The handlers under `/v1/transactions`."""

    def __init__(self, metadata: Metadata, transactions: TransactionService) -> None:
        self._metadata = metadata
        self._transactions = transactions

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get("/v1/transactions", self.list)
        router.add_get("/v1/transactions/description", self.describe)
        router.add_post("/v1/transactions/abort", self.abort)

    async def list(self, request: web.Request) -> web.Response:
        """List open transactions, or all transactional ids, in order of their names, one page.

        `next` is the `after` of the next page, null on the last page. `age_min_ms` leaves out younger transactions.
        """
        page = models.TRANSACTION_PAGE.read(request)
        now_ms = await self._metadata.now_ms()
        found = await self._metadata.transactions.list(
            after=page.after, limit=page.limit, is_ongoing=page.open == "true"
        )
        shown = [
            _shown(row, now_ms) for row in found if page.age_min_ms <= 0 or _age_ms(row, now_ms) >= page.age_min_ms
        ]
        last = found[-1].transactional_id if len(found) == page.limit else None
        return web.json_response({"transactions": shown, "next": last})

    async def describe(self, request: web.Request) -> web.Response:
        """Show a transactional id, and the partitions and groups of its open transaction."""
        page = models.TRANSACTION_NAME.read(request)
        row, partitions = await self._transactions.get(page.id)
        first_offsets: dict[PartitionKey, int] = {}
        if row.is_ongoing:
            opened = await self._metadata.transactions.open_offsets(producer_id=row.producer_id)
            first_offsets = {item.partition: item.first_offset for item in opened}
        streams = await self._metadata.streams.by_numbers({stream_number(key) for key in partitions})
        names = {stream.number: stream.name for stream in streams if not stream.is_deleted}
        answer = {
            **_shown(row, await self._metadata.now_ms()),
            "groups": sorted(row.groups),
            "partitions": [
                {
                    "stream": names[stream_number(key)],
                    "partition": partition_index(key),
                    "first_offset": first_offsets.get(key),
                }
                for key in partitions
                if stream_number(key) in names
            ],
        }
        return web.json_response(answer)

    async def abort(self, request: web.Request) -> web.Response:
        """Abort the open transaction of exactly this producer id and epoch, and fence its producer; no-op if it has ended."""
        if request.content_type != "application/json":
            raise Invalid("expected JSON with Content-Type: application/json")
        asked = models.TRANSACTION_TO_ABORT.read(await request.read())
        try:
            await self._transactions.abort(asked.transactional_id, (asked.producer_id, asked.epoch))
        except TransactionRefusal as refusal:
            raise Conflict(
                f"the transactional id {asked.transactional_id!r} has another producer id or epoch by now: describe it again"
            ) from refusal
        row, _ = await self._transactions.get(asked.transactional_id)
        return web.json_response(_shown(row, await self._metadata.now_ms()))


def _age_ms(row: Transaction, now_ms: int) -> int:
    """Return the age (ms) of the open transaction by the store's clock; -1: none is open."""
    return max(0, now_ms - row.started_ms) if row.is_ongoing else -1


def _shown(row: Transaction, now_ms: int) -> dict[str, object]:
    return {
        "transactional_id": row.transactional_id,
        "producer_id": row.producer_id,
        "epoch": row.epoch,
        "state": row.state.name.lower(),
        "age_ms": _age_ms(row, now_ms) if row.is_ongoing else None,
        "timeout_ms": row.timeout_ms,
    }
