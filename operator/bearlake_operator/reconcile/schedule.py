"""How many workers a Compactor's schedule asks for at a given time."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bearlake_operator.api import CompactorSpec, Window
from bearlake_operator.errors import Invalid

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_MINUTES = 24 * 60


def replicas(spec: CompactorSpec, now: datetime) -> int:
    """The number of workers at `now`: that of the first open window, else `spec.replicas`. Raises `Invalid` for an unknown time zone."""
    return next((window.replicas for window in spec.schedule if _is_open(window, now)), spec.replicas)


def next_change(spec: CompactorSpec, now: datetime) -> datetime | None:
    """The next time at which a window may open or close; None without a schedule."""
    if not spec.schedule:
        return None
    return min(
        _next_time(now, minute, _zone(window))
        for window in spec.schedule
        for minute in (window.start_minute, window.end_minute)
    )


def _is_open(window: Window, now: datetime) -> bool:
    local = now.astimezone(_zone(window))
    minute, day = local.hour * 60 + local.minute, _DAYS[local.weekday()]
    if window.start_minute < window.end_minute:
        return window.start_minute <= minute < window.end_minute and _includes(window, day)
    # The window spans midnight: it opened today, or it opened yesterday and is still open.
    if minute >= window.start_minute:
        return _includes(window, day)
    return minute < window.end_minute and _includes(window, _DAYS[local.weekday() - 1])


def _includes(window: Window, day: str) -> bool:
    return not window.days or day in window.days


def _next_time(now: datetime, minute: int, zone: ZoneInfo) -> datetime:
    local = now.astimezone(zone)
    today = local.replace(hour=minute // 60, minute=minute % 60, second=0, microsecond=0)
    return (today if today > local else today + timedelta(minutes=_DAY_MINUTES)).astimezone(UTC)


def _zone(window: Window) -> ZoneInfo:
    try:
        return ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise Invalid(f"schedule: unknown time zone {window.time_zone!r}") from error
