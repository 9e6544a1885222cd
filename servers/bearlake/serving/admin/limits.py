"""Handlers that bound their requests themselves: the admin API's limits of count and time are not for them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

_MARK = "bearlake_own_limits"

F = TypeVar("F", bound=Callable[..., Awaitable[web.StreamResponse]])


def own_limits(handler: F) -> F:
    """Mark a handler."""
    setattr(handler, _MARK, True)
    return handler


def has_own_limits(request: web.Request) -> bool:
    """Whether the request's handler is marked."""
    return getattr(request.match_info.handler, _MARK, False)
