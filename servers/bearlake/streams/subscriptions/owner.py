"""The interface through which attachments call the service that owns their subscription."""

from collections.abc import Callable
from typing import Protocol

from bearlake.streams.subscriptions.subscription import Subscription


class SubscriptionOwner(Protocol):
    """The service that owns a subscription: `service.SubscriptionService`."""

    async def flush(self, subscription: Subscription) -> None:
        """Return when the subscription's acknowledgements are saved. Raises `Fenced`, `Overloaded`, `Unavailable`."""

    async def move(self, subscription: Subscription, offset: int) -> None:
        """Set the subscription's mark-delete offset; closes its consumers, which continue there. Raises `Fenced`, `Unavailable`."""

    async def move_to_time(self, subscription: Subscription, timestamp_ms: int) -> None:
        """As `move`, to the first record at or after a time."""

    async def forget(self, subscription: Subscription, on_forgotten: Callable[[], None]) -> None:
        """Delete the subscription; `on_forgotten` runs before its consumers are closed. Raises `Fenced`, `Unavailable`."""
