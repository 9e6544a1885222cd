"""The groups of one server process: those that it coordinates, and, for members that run inside it, all of the deployment.

Built with the first request about groups (`on_demand.py`).
"""

from bearlake.metadata import Metadata
from bearlake.metadata.model import ServerRef
from bearlake.owned_tasks import Tasks
from bearlake.streams.groups.configs import GroupConfigs
from bearlake.streams.groups.consumer.subscriptions import Topics
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.peers import Peers
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.groups.shared import Groups
from bearlake.streams.tenure import Tenure


class GroupService:
    """Use it from the event loop's thread only."""

    def __init__(
        self,
        metadata: Metadata,
        server: ServerRef,
        settings: GroupSettings,
        peers: Peers,
        tenure: Tenure,
        topics: Topics,
        configs: GroupConfigs,
    ) -> None:
        """`topics`: what members may subscribe to. `configs`: the configs of groups. The caller closes `tenure`."""
        ownership = Ownership(metadata, server, settings, peers.may_coordinate, tenure, topics)
        ownership.protocols.configured = configs.of
        ownership.protocols.configured_share = configs.share_of
        ownership.protocols.configured_streams = configs.streams_of
        self.coordinator = Coordinator(metadata, ownership)
        """The groups that this server coordinates: for clients that find the coordinator themselves."""
        self.groups = Groups(self.coordinator, server, peers)
        """All groups: for members that run inside this server."""

    async def run(self) -> None:
        """Run the background tasks until cancelled."""
        async with Tasks() as tasks:
            tasks.own("release idle groups", self.coordinator.ownership.run())
            tasks.own("hand groups over", self.groups.run())
            await tasks.run()

    def refuse(self) -> None:
        """Take no more groups."""
        self.coordinator.ownership.refuse()

    async def drain(self) -> None:
        """Take no more groups, and release all."""
        await self.coordinator.ownership.drain()

    async def close(self) -> None:
        """Stop at once."""
        await self.coordinator.ownership.close()
