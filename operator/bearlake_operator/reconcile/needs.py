"""Which tiers must exist, and how many workers a Compactor has now."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bearlake_operator.api import CompactorSpec, StreamSpec, Window
from bearlake_operator.errors import Invalid
from bearlake_operator.reconcile.claims import Claim
from bearlake_operator.settings import PROTOCOLS, Settings

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_MINUTES = 24 * 60


def tiers(
    settings: Settings, claims: Iterable[Claim], leaving: Iterable[StreamSpec] = ()
) -> Mapping[str, tuple[str, ...]]:
    """The protocols that some Stream of each data layer asks for, in the order of `PROTOCOLS`; one that leaves does so until it is gone."""
    wanted: dict[str, set[str]] = {name: set() for name in settings.data_layers}
    for spec in (*(claim.spec for claim in claims if claim.is_owner), *leaving):
        if spec.data_layer in wanted:
            wanted[spec.data_layer] |= set(spec.protocols)
    return {name: tuple(one for one in PROTOCOLS if one in found) for name, found in wanted.items()}


def replicas(spec: CompactorSpec, now: datetime) -> int:
    """The number of workers at this time. Raises `Invalid` for a time zone that nobody knows."""
    return next((window.replicas for window in spec.schedule if _holds(window, now)), spec.replicas)


def next_change(spec: CompactorSpec, now: datetime) -> datetime | None:
    """When a window of the schedule may begin or end next; None without a schedule."""
    if not spec.schedule:
        return None
    return min(
        _next_time(now, minute, _zone(window))
        for window in spec.schedule
        for minute in (window.start_minute, window.end_minute)
    )


def _holds(window: Window, now: datetime) -> bool:
    local = now.astimezone(_zone(window))
    minute, day = local.hour * 60 + local.minute, _DAYS[local.weekday()]
    if window.start_minute < window.end_minute:
        return window.start_minute <= minute < window.end_minute and _is_on(window, day)
    if minute >= window.start_minute:  # over midnight: this day's window …
        return _is_on(window, day)
    return minute < window.end_minute and _is_on(window, _DAYS[local.weekday() - 1])  # … or that of the day before


def _is_on(window: Window, day: str) -> bool:
    return not window.days or day in window.days


def _next_time(now: datetime, minute: int, zone: ZoneInfo) -> datetime:
    local = now.astimezone(zone)
    due = local.replace(hour=minute // 60, minute=minute % 60, second=0, microsecond=0)
    return (due if due > local else due + timedelta(minutes=_DAY_MINUTES)).astimezone(UTC)


def _zone(window: Window) -> ZoneInfo:
    try:
        return ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise Invalid(f"schedule: there is no time zone {window.time_zone!r}") from error
