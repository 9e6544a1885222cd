"""The interface of a role, one kind of server in a process, and the parts that every role is built from.

`app/process.py` runs the roles of a process. Roles are `app/kafka.py`, `app/pulsar.py`, `app/rest.py`, `app/registry.py`, `app/catalog.py`,
`app/grpc.py` and `app/compactor.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from bearlake.metadata import Metadata
from bearlake.metadata.model import ServerRef
from bearlake.objects import ObjectStore
from bearlake.owned_tasks import Tasks
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.authentication.peer import LoginRules, login_rules
from bearlake.serving.certificates import Certificates
from bearlake.serving.groups.peers import GroupPeers
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.listener import BoundSettings, Listener, ListenerSettings
from bearlake.serving.membership import RegisteredServer
from bearlake.serving.trust import PeerTrust
from bearlake.settings.document import Settings
from bearlake.settings.load import Loaded
from bearlake.streams.audit import Audit
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import CheckedValues, Compiled, SchemaCompiler, ValueChecker
from bearlake.streams.service import Streams

if TYPE_CHECKING:
    from bearlake.serving.authentication.authenticator import Authenticator
    from bearlake.serving.shares.client import SharePeers
    from bearlake.streams.schemas.confined.pool import Pool
    from bearlake.streams.schemas.service import Schemas
    from bearlake.streams.subscriptions.share_dispatch import ShareDispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a process: its settings, and the variables that hold secrets."""

    loaded: Loaded[Settings]
    environ: Mapping[str, str]

    @property
    def settings(self) -> Settings:
        """The settings themselves."""
        return self.loaded.settings


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts that every role is built from."""

    plan: Plan
    metadata: Metadata
    store: ObjectStore
    registered: RegisteredServer
    closing: AsyncExitStack
    """Resources to close at the end, last opened first."""
    on_fenced: Callable[[], None]
    on_unknown: Callable[[], None]
    certificates: Certificates
    token: AdminToken | None = None
    """The admin API's token, shared by all servers of the deployment."""
    metrics_token: AdminToken | None = None
    """The token that reads only metrics; None: there is none."""
    trust: PeerTrust | None = None
    """How the other servers' admin APIs are verified; None: by the machine's authorities."""
    stream_service: Streams | None = None
    registry: "Schemas | None" = None
    built_authenticator: "Authenticator | None" = None
    audit_log: Audit | None = None
    built_share_peers: "SharePeers | None" = None
    on_demand: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What the stream service's callers open while the process serves; it is closed after the stream service."""

    @property
    def settings(self) -> Settings:
        """The settings themselves."""
        return self.plan.settings

    def streams(self) -> Streams:
        """The process's stream service, shared by all its roles and created on first use. The process starts, runs and drains it."""
        if self.stream_service is None:
            peers = GroupPeers(self.registered, self.settings.streams.groups, self.token, self.trust)
            self.closing.push_async_callback(peers.close)
            self.closing.push_async_callback(self.on_demand.aclose)
            compiler = CompilerOnDemand(self._compiler)
            self.stream_service = Streams(
                self.metadata,
                self.store,
                self.registered.server,
                self.settings.streams,
                access=self.settings.access,
                audit=self.audit(),
                server_count=lambda: self.registered.serving_count,
                peers=peers,
                on_fenced=self.on_fenced,
                on_unknown=self.on_unknown,
                tenure=self.registered.tenure,
                compiler=compiler,
                checker=compiler,
            )
            self.closing.push_async_callback(self.stream_service.close)
        return self.stream_service

    def _compiler(self) -> "Pool":
        from bearlake.streams.schemas.confined.pool import Pool

        compiler = Pool(self.settings.schemas, label="checks")  # starts a process when a schema has to be compiled
        self.on_demand.callback(compiler.close)
        return compiler

    def share_peers(self) -> "SharePeers":
        """How the process reaches the dispatchers of share groups: shared by all its roles, created on first use, and closed at the end."""
        if self.built_share_peers is None:
            from bearlake.serving.shares.client import SharePeers

            self.built_share_peers = SharePeers(self.registered, self.settings.streams.groups, self.token, self.trust)
            self.on_demand.push_async_callback(self.built_share_peers.close)
        return self.built_share_peers

    def audit(self) -> Audit:
        """The audit log of the process, created on first use."""
        if self.audit_log is None:
            self.audit_log = Audit(self.settings.streams.audit)
        return self.audit_log

    def authenticator(self) -> "Authenticator":
        """The process's authenticator, shared by all its roles, created on first use, and closed at the end. Raises `Invalid`."""
        if self.built_authenticator is None:
            from bearlake.app.identity import build_authenticator  # its libraries take time to load

            self.built_authenticator = build_authenticator(
                self.settings.authentication, self.metadata, self.closing, self.audit()
            )
        return self.built_authenticator

    def http_login(self, listener: ListenerSettings) -> HttpListenerLogin | None:
        """Return how clients of an HTTP listener log in; None: they need not. Raises `Invalid`."""
        rules = login_rules(listener, self.settings.authentication)
        return self.http_login_by(rules) if rules.is_required else None

    def http_login_by(self, rules: LoginRules) -> HttpListenerLogin:
        """Return the login of an HTTP listener with these rules. Raises `Invalid`."""
        from bearlake.serving.authentication.forwarding import ForwardedLogins  # its libraries take time to load

        forwarded = ForwardedLogins(self.metadata.users.decoy_key, self.registered.node_id)
        return HttpListenerLogin(self.authenticator(), rules, forwarded)

    def schemas(self) -> "Schemas":
        """The process's schema registry, shared by all its roles, created on first use, and closed at the end."""
        if self.registry is None:
            from bearlake.streams.schemas.service import Schemas  # its libraries are an extra of their own

            self.registry = Schemas(
                self.metadata.schemas, self.settings.schemas, self.streams().authorizer, self.audit()
            )
            self.closing.callback(self.registry.close)
        return self.registry


class CompilerOnDemand(SchemaCompiler, ValueChecker):
    """The compiler and checker of schemas that is built with the first schema."""

    def __init__(self, build: "Callable[[], Pool]") -> None:
        self._build = cache(build)

    @override
    async def compiled(self, type_name: str, text: str, references: Mapping[str, str]) -> Compiled:
        return await self._build().compiled(type_name, text, references)

    @override
    def budget(self) -> Budget:
        return self._build().budget()

    @override
    async def checked_values(self, schema: Compiled, values: Sequence[bytes], budget: Budget) -> CheckedValues:
        return await self._build().checked_values(schema, values, budget)


class SharesOnDemand:
    """A `ShareReach` that is built with the first request for a share group."""

    def __init__(self, peers: "Callable[[], SharePeers]") -> None:
        self._peers = peers

    def reach_shares(self, server: ServerRef) -> "ShareDispatch | None":
        """As `SharePeers`."""
        return self._peers().reach_shares(server)


OpenListener = Callable[[BoundSettings, str], Listener]
"""Binds a listener for a named purpose; its socket is closed at the end in any case."""


class Role(Protocol):
    """One kind of server: its listeners, and what it runs on the stores. Each method is called once, in this order."""

    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        """Bind listeners; returns advertised addresses by name. Raises `Invalid`, `Unavailable`."""

    def build(self, parts: Parts) -> None:
        """Build the role's services."""

    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        """Start the services; returns the addresses that now accept connections. Raises `Unavailable`."""

    async def drain(self, deadline_ms: int) -> None:
        """Finish requests in progress, within `deadline_ms` from now."""
