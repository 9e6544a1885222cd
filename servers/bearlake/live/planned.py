"""The warehouse `planned` of the Iceberg REST catalog: the views of `live`, and current tables, whose scans the server plans.

A view that was loaded here has one more object: what a plan needs of its metadata, under a key that begins with its hour and its id
(`tail/<hour>/<stream>/view-<id>-…`). So every server can plan every view for as long as its files exist, and plans it to the same rows.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

from bearlake.clock import Clock
from bearlake.errors import AlreadyExists, NotFound, Overloaded
from bearlake.live.catalog import LiveCatalog, Loaded
from bearlake.live.settings import TAIL_PREFIX, LiveSettings
from bearlake.metadata.model import Stream
from bearlake.metadata.tokens import hour_prefix
from bearlake.objects import ObjectStore
from bearlake.table.applied_tasks import STREAM_ID_PROPERTY
from bearlake.table.iceberg import IcebergTables
from bearlake.table.io import StoreFileIO
from bearlake.table.naming import is_current
from bearlake.table.warehouse.answers import answer_of
from bearlake.table.warehouse.errors import in_words_of_the_specification
from bearlake.table.warehouse.model import Answer, Body, Refused, invalid
from bearlake.table.warehouse.plans import LoadedMetadata, metadata_of_view, plan_pages, read_view
from bearlake.table.warehouse.scans import Scan, scan_of, scan_of_task
from bearlake.telemetry import catalog_metrics as metrics

_NO_SNAPSHOT: Final = -1
_NO_FILES: Final = b'"file-scan-tasks":[]'
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A plan that was made: its scan with the snapshot, and its pages."""

    scan: Scan
    pages: list[bytes]
    size: int


class PlannedCatalog:
    """Plans scans. Belongs to one event loop; the caller closes what it gives."""

    def __init__(
        self, live: LiveCatalog, tables: IcebergTables, store: ObjectStore, settings: LiveSettings, clock: Clock
    ) -> None:
        self._live = live
        self._tables = tables
        self._store = store
        self._settings = settings
        self._clock = clock
        self._places = asyncio.Semaphore(settings.plans.concurrent_count)
        self._views: OrderedDict[int, str] = OrderedDict()
        self._plans: OrderedDict[str, _Plan] = OrderedDict()
        self._plan_bytes = 0
        self._running_count = 0
        metrics.PLANS_RUNNING.set_function(lambda: self._running_count)
        metrics.PLAN_BYTES.set_function(lambda: self._plan_bytes)
        metrics.PLANS_RUNNING_MAX.set(settings.plans.concurrent_count)
        metrics.PLAN_BYTES_MAX.set(settings.plans.cache_bytes_max)

    async def load(self, stream: Stream) -> Answer:
        """Return a view of the stream's table, as `LiveCatalog.load`; every server can plan it from now on.

        The table of a stream that is derived for a current table is returned as it is: its rows end at the offsets that it states.
        """
        return (await self._loaded(stream)).answer

    async def plan(self, stream: Stream, body: Body) -> bytes:
        """Plan the scan that a request asks for, and return the answer (`CompletedPlanningResult`).

        Raises as `LiveCatalog.load`, and:
            Refused: the request is wrong, there is no such snapshot, or the server does not plan such scans.
            Overloaded: too many plans are being made.
        """
        scan = scan_of(body, self._settings.plans.scan_bytes_max)
        if scan.snapshot_id is None:
            loaded = await self._loaded(stream)
            if loaded.view_id == _NO_SNAPSHOT:
                return _completed(_NO_FILES)
            scan = replace(scan, snapshot_id=loaded.view_id)
        plan = await self._planned(stream, scan)
        return self._first(_plan_id(stream, scan), plan)

    async def tasks(self, stream: Stream, task: object) -> bytes:
        """Return the files of a plan task (`FetchScanTasksResult`). Raises as `plan`; 404 for a text that is no plan task of the table."""
        scan = scan_of_task(task, self._settings.plans.scan_bytes_max)
        plan = await self._planned(stream, scan)
        if not 0 <= scan.page < len(plan.pages):
            raise Refused(404, "NoSuchPlanTaskException", "The plan task does not exist")
        return b"{%b}" % _with_next(plan, scan.page)

    def result(self, stream: Stream, plan_id: str) -> bytes:
        """Return the answer of a plan again. Raises `Refused` (404): this server holds no such plan of the table."""
        return self._first(plan_id, self._known(stream, plan_id))

    def cancel(self, stream: Stream, plan_id: str) -> None:
        """Forget a plan; its plan tasks stay valid. Raises as `result`."""
        self._known(stream, plan_id)
        self._forget(plan_id)

    # -- views ---------------------------------------------------------------------------------------------------

    async def _loaded(self, stream: Stream) -> Loaded:
        if is_current(stream):
            return await self._current(stream)
        loaded = await self._live.loaded(stream.number)
        if loaded.has_tail and self._views.get(loaded.view_id, "") < _key_of(loaded):
            await self._write(stream, loaded)
        return loaded

    async def _current(self, stream: Stream) -> Loaded:
        table = await self._tables.load(stream)
        if table is None:
            raise NotFound(f"there is no table {stream.name}")
        number = table.metadata.current_snapshot_id
        answer = await self._tables.run(stream.name, lambda: answer_of(table))
        return Loaded(answer=answer, view_id=_NO_SNAPSHOT if number is None else number, key="", has_tail=False)

    async def _write(self, stream: Stream, loaded: Loaded) -> None:
        def kept() -> bytes:
            text = json.loads(loaded.answer.body)["metadata"]
            return metadata_of_view(json.dumps(text)).encode()

        content = await self._tables.run(stream.name, kept)
        with suppress(AlreadyExists):  # by another load of the same view
            await self._store.put(_key_of(loaded), [content])
        self._remember_view(loaded.view_id, _key_of(loaded))

    def _remember_view(self, view_id: int, key: str) -> None:
        self._views[view_id] = key
        self._views.move_to_end(view_id)
        while len(self._views) > self._settings.plans.view_count_max:
            self._views.popitem(last=False)

    async def _metadata(self, stream: Stream, snapshot_id: int) -> LoadedMetadata:
        """Return the metadata with a snapshot of the stream's table, or one of its views. Raises `Refused`: there is no such snapshot."""
        key = self._views.get(snapshot_id)
        if key is None:
            table = await self._tables.load(stream)
            if table is not None and table.snapshot_by_id(snapshot_id) is not None:
                return table.metadata
            key = await self._find(stream, snapshot_id)
        if key is not None:
            metadata = await self._tables.run(stream.name, lambda: self._read(key))
            # Nobody plans another stream's view.
            if metadata is not None and metadata.properties.get(STREAM_ID_PROPERTY) == str(stream.id):
                self._remember_view(snapshot_id, key)
                return metadata
        raise invalid(f"Cannot find snapshot with ID {snapshot_id}")

    def _read(self, key: str) -> LoadedMetadata | None:
        """Read a view's metadata. Blocks. None: the view has been swept."""
        try:
            return read_view((self._tables.bridge.whole(key) or b"").decode())
        except FileNotFoundError:
            return None

    async def _find(self, stream: Stream, view_id: int) -> str | None:
        """Look for a view that another server has written; its clock may be an hour off."""
        now_ms = self._clock.now_ms()
        for hour in range(-1, 2 + self._settings.life_ms // _HOUR_MS):
            prefix = f"{hour_prefix(now_ms - hour * _HOUR_MS, TAIL_PREFIX)}{stream.id.hex}/{_view_name(view_id)}-"
            if found := [info.key async for info in self._store.list(prefix)]:
                return max(found)
        return None

    # -- plans ---------------------------------------------------------------------------------------------------

    async def _planned(self, stream: Stream, scan: Scan) -> _Plan:
        plan_id = _plan_id(stream, scan)
        if (known := self._plans.get(plan_id)) is not None:
            self._plans.move_to_end(plan_id)
            return known
        async with self._place():
            began_s = asyncio.get_running_loop().time()
            metadata = await self._metadata(stream, scan.snapshot_id or 0)
            pages = await self._tables.run(stream.name, lambda: self._pages(metadata, scan))
            metrics.PLAN_SECONDS.observe(asyncio.get_running_loop().time() - began_s)
        plan = _Plan(scan=scan, pages=pages, size=sum(map(len, pages)) + len(scan.key()))
        self._remember(plan_id, plan)
        return plan

    def _pages(self, metadata: LoadedMetadata, scan: Scan) -> list[bytes]:
        limits, files = self._settings.plans, StoreFileIO(self._tables.bridge.properties())
        with in_words_of_the_specification():
            return plan_pages(
                metadata,
                files,
                scan,
                file_count_max=limits.file_count_max,
                manifest_bytes_max=limits.manifest_bytes_max,
                page_count=limits.page_file_count,
            )

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._settings.plans.wait_ms / 1000):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded("too many scans are being planned (live.plans.concurrent_count)") from None
        self._running_count += 1
        try:
            yield
        finally:
            self._running_count -= 1
            self._places.release()

    def _first(self, plan_id: str, plan: _Plan) -> bytes:
        """Return the first answer of a plan. It names the plan only if more follows and the server holds it for the client."""
        is_held = len(plan.pages) > 1 and plan_id in self._plans
        return _completed((b'"plan-id":"%b",' % plan_id.encode() if is_held else b"") + _with_next(plan, 0))

    def _known(self, stream: Stream, plan_id: str) -> _Plan:
        plan = self._plans.get(plan_id)
        if plan is None or _plan_id(stream, plan.scan) != plan_id:
            raise Refused(404, "NoSuchPlanIdException", "This server holds no plan with this id")
        return plan

    def _remember(self, plan_id: str, plan: _Plan) -> None:
        self._forget(plan_id)
        self._plans[plan_id] = plan
        self._plan_bytes += plan.size
        while self._plan_bytes > self._settings.plans.cache_bytes_max:
            self._forget(next(iter(self._plans)))

    def _forget(self, plan_id: str) -> None:
        if (plan := self._plans.pop(plan_id, None)) is not None:
            self._plan_bytes -= plan.size


def _plan_id(stream: Stream, scan: Scan) -> str:
    return hashlib.sha256(f"{stream.id} {scan.key()}".encode()).hexdigest()[:32]


def _view_name(view_id: int) -> str:
    return f"view-{view_id:016x}"


def _key_of(loaded: Loaded) -> str:
    """Return the key of a view's metadata, beside its manifests."""
    folder, _, name = loaded.key.rpartition("/")
    return f"{folder}/{_view_name(loaded.view_id)}-{name}.metadata.json"


def _completed(inside: bytes) -> bytes:
    return b'{"status":"completed",%b}' % inside


def _with_next(plan: _Plan, page: int) -> bytes:
    if page + 1 >= len(plan.pages):
        return plan.pages[page]
    return b'"plan-tasks":["%b"],%b' % (plan.scan.plan_task(page + 1).encode(), plan.pages[page])
