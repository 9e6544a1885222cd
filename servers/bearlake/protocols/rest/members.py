"""The deployment's live servers as the REST server asks for them."""

from collections.abc import Sequence
from typing import Protocol

from bearlake.metadata.model import Server


class Members(Protocol):
    """The deployment's live servers as this one sees them; no waiting."""

    @property
    def cluster_id(self) -> str:
        """The deployment's id."""

    @property
    def node_id(self) -> int:
        """This server's node id."""

    def live(self) -> Sequence[Server]:
        """Live servers, draining ones too, by node id; always with this one."""
