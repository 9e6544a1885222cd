"""Marks of handlers: the server's limits on time, or on time and count, do not apply; a GET changes something."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

_OWN_TIME = "bearlake_own_time"
_OWN_LIMITS = "bearlake_own_limits"
_CHANGES = "bearlake_changes"

F = TypeVar("F", bound=Callable[..., Awaitable[web.StreamResponse]])


def own_time(handler: F) -> F:
    """Mark a handler that limits its own time, such as a handler that follows a stream."""
    setattr(handler, _OWN_TIME, True)
    return handler


def own_limits(handler: F) -> F:
    """Mark a handler that limits its own time and the number of its requests."""
    setattr(handler, _OWN_LIMITS, True)
    return handler


def changes(handler: F) -> F:
    """Mark a handler that changes something although its method is GET: pages of other origins may not call it."""
    setattr(handler, _CHANGES, True)
    return handler


def has_changes(request: web.Request) -> bool:
    """Return whether the request's handler changes something although its method is GET."""
    return getattr(request.match_info.handler, _CHANGES, False)


def has_own_time(request: web.Request) -> bool:
    """Return whether the request's handler limits its own time."""
    handler = request.match_info.handler
    return getattr(handler, _OWN_TIME, False) or getattr(handler, _OWN_LIMITS, False)


def has_own_limits(request: web.Request) -> bool:
    """Return whether the request's handler limits its own time and the number of its requests."""
    return getattr(request.match_info.handler, _OWN_LIMITS, False)
