"""What engines ask for when they let the catalog plan a scan, and the plan tasks by which they fetch the rest of a plan.

A plan task is the request itself with its snapshot and a page, packed into a text, so that any server can answer it. It gives no rights:
whoever sends one is checked as if it had sent the request.

Source: Apache Iceberg REST specification, `PlanTableScanRequest`, `FetchScanTasksRequest`.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bearlake.table.warehouse.model import Body, Refused, invalid

_LONG: Final = 2**63
_NAME_COUNT_MAX: Final = 20_000
_OVERHEAD: Final = 4096
"""Bytes of a plan task beyond its filter and names, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A point-in-time scan. `snapshot_id` None: of the newest snapshot. `filter` (Any: JSON) None: of all rows. `page`: which tasks."""

    snapshot_id: int | None = None
    filter: Any = None
    select: tuple[str, ...] = ()
    stats_fields: tuple[str, ...] = ()
    is_case_sensitive: bool = True
    uses_snapshot_schema: bool = False
    page: int = 0

    def key(self) -> str:
        """Return a text that is the same for the same plan, whatever the page."""
        return json.dumps(replace(self, page=0)._body(), sort_keys=True)

    def plan_task(self, page: int) -> str:
        """Return the plan task of a page. The snapshot is known."""
        text = json.dumps({**self._body(), "page": page}, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(zlib.compress(text, 1)).decode()

    def _body(self) -> dict[str, Any]:
        return {
            "snapshot-id": self.snapshot_id,
            "filter": self.filter,
            "select": list(self.select),
            "stats-fields": list(self.stats_fields),
            "case-sensitive": self.is_case_sensitive,
            "use-snapshot-schema": self.uses_snapshot_schema,
            "page": self.page,
        }


def scan_of(body: Body, scan_bytes_max: int) -> Scan:
    """Return the scan that a request asks for.

    Raises:
        Refused: 400 for a wrong request or a filter that is too large, 406 for an incremental scan.
    """
    if body.get("start-snapshot-id") is not None or body.get("end-snapshot-id") is not None:
        if body.get("snapshot-id") is not None:
            raise invalid("Invalid scan: both snapshot-id and start-snapshot-id or end-snapshot-id")
        if body.get("end-snapshot-id") is None:
            raise invalid("Invalid incremental scan: end-snapshot-id is required when start-snapshot-id is specified")
        raise Refused(406, "UnsupportedOperationException", "Incremental scans are not planned by this server")
    scan = Scan(
        snapshot_id=_number(body, "snapshot-id"),
        filter=body.get("filter"),
        select=_names(body, "select"),
        stats_fields=_names(body, "stats-fields"),
        is_case_sensitive=_truth(body, "case-sensitive", default=True),
        uses_snapshot_schema=_truth(body, "use-snapshot-schema", default=False),
        page=_number(body, "page") or 0,
    )
    if (size := len(scan.key())) > scan_bytes_max:
        raise invalid(
            f"The filter and the names have {size} bytes; the limit is {scan_bytes_max} (live.plans.scan_bytes_max)"
        )
    return scan


def scan_of_task(task: object, scan_bytes_max: int) -> Scan:
    """Return the scan of a plan task. Raises `Refused`: 404, it is none."""
    try:
        packed = base64.urlsafe_b64decode(task) if isinstance(task, str) else b""
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(packed, scan_bytes_max + _OVERHEAD)
        body = json.loads(text) if unpacking.eof else None
        if not isinstance(body, Mapping) or body.get("snapshot-id") is None:
            raise _no_task()
        return scan_of(body, scan_bytes_max)
    except (binascii.Error, zlib.error, ValueError, RecursionError, Refused) as error:
        raise _no_task() from error


def _no_task() -> Refused:
    return Refused(404, "NoSuchPlanTaskException", "The plan task does not exist")


def _number(body: Body, name: str) -> int | None:
    found = body.get(name)
    if found is not None and (type(found) is not int or not -_LONG <= found < _LONG):
        raise invalid(f"{name}: expected a number of 64 bits")
    return found


def _truth(body: Body, name: str, *, default: bool) -> bool:
    found = body.get(name)
    if found is not None and not isinstance(found, bool):
        raise invalid(f"{name}: expected true or false")
    return default if found is None else found


def _names(body: Body, name: str) -> tuple[str, ...]:
    found = body.get(name)
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) > _NAME_COUNT_MAX or not all(isinstance(text, str) for text in found):
        raise invalid(f"{name}: expected a list of at most {_NAME_COUNT_MAX} names")
    return tuple(found)
