"""The operator's settings file: one YAML document that the chart renders from its values. The operator reads it at start.

    image, watchNamespaces …
    dataLayers:
      default:
        settings: {…}              # settings of Bearlake's servers, shared by all pods of the data layer
        environment: [{name, secret, key}]
        files: [secret]
        admin: {secret, key, metrics: {secret, key}}
        tiers: {kafka: {…}, rest: {…}, compactor: {…}}

`example.yaml` is an example; the tests load it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from bearlake_operator import decoder, stream_names
from bearlake_operator.api import StreamSpec
from bearlake_operator.errors import Invalid

PROTOCOLS = ("kafka", "pulsar", "rest", "grpc")
CATALOG = "catalog"
"""The tier of the Iceberg REST catalog. Its values enable it; no Stream asks for it."""
SERVER_TIERS = (*PROTOCOLS, CATALOG)
RESERVED_LISTENER_NAMES = frozenset({*SERVER_TIERS, "pulsar-http", "registry", "admin", "pods"})
"""Names that ports and Services of tiers already use; lower-case letters, digits and dashes."""
SCALING_SECONDS_MAX = 3600
"""Longest stabilization window of an autoscaler. Source: Kubernetes, HPAScalingRules."""
ADVERTISING_PROTOCOLS = ("kafka", "pulsar")
"""Protocols whose servers advertise addresses to clients. These servers open each additional listener on a port of its own."""
COMPACTOR = "compactor"
_SOURCE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?\Z")
"""Names of sources: part of the names and labels of objects."""
PORT_MAX = 65535


class ScalingMode(Enum):
    """The source of an autoscaler's metrics."""

    CPU = "cpu"
    """CPU, from metrics-server."""
    BUILTIN = "builtin"
    """Requests, bytes and backlog, from Bearlake's own metrics API, which the chart installs."""
    KEDA = "keda"
    """KEDA ScaledObjects instead of HorizontalPodAutoscalers: servers scale by CPU, workers by the backlog that they report to KEDA."""


class ListenerType(Enum):
    """How clients reach a listener."""

    INTERNAL = "internal"
    """From inside the cluster: servers advertise the addresses of their pods."""
    NODE_PORT = "nodeport"
    """Through a port of the nodes: each server advertises its own node."""
    LOAD_BALANCER = "loadbalancer"
    """Through one load balancer for all pods. Any server serves any partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """Autoscaling of a tier."""

    mode: ScalingMode = ScalingMode.CPU
    min_replicas: int = 2
    max_replicas: int = 10
    target_cpu_percent: int | None = None
    """Target CPU utilization, in percent of the request. A server saturates at one core: leave room for the time until new pods are ready.
    Null: 65 with `cpu` and `keda`; with `builtin`, CPU is ignored, so that no metrics-server is needed."""
    target_requests_per_second: int = 0
    """Target per pod, with `builtin`; 0: ignored."""
    target_bytes_per_second: int = 0
    """Target per pod for bytes received and sent, with `builtin`; 0: ignored."""
    scale_up_seconds: int = 0
    """Stabilization window before scaling up."""
    scale_down_seconds: int | None = None
    """Stabilization window before scaling down. Null: 900 for servers, whose clients must reconnect; 300 for workers, which have no
    clients."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError("minReplicas must be at least 1 and not larger than maxReplicas")
        for name, seconds in (("scaleUpSeconds", self.scale_up_seconds), ("scaleDownSeconds", self.scale_down_seconds)):
            if seconds is not None and not 0 <= seconds <= SCALING_SECONDS_MAX:
                raise ValueError(f"{name} must be from 0 to {SCALING_SECONDS_MAX}")
        if self.has_rates and self.mode is not ScalingMode.BUILTIN:
            raise ValueError("targetRequestsPerSecond and targetBytesPerSecond need mode builtin")

    @property
    def has_rates(self) -> bool:
        """Whether there is a target for requests or bytes."""
        return bool(self.target_requests_per_second or self.target_bytes_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierListener:
    """An additional listener of a tier. Every tier has an internal one."""

    name: str
    type: ListenerType
    port: int
    """Port of its Service. The port of an internal listener that advertises no addresses (Pulsar's HTTP API, the schema registry) leads
    to that listener."""
    node_port: int = 0
    """Node port, with the type `nodeport`. Servers advertise it, so it must be known before the Service exists."""
    advertised_host: str = ""
    """Host that servers advertise; empty: the address of the server's node, or the host of the load balancer."""
    tls_secret: str = ""
    """Secret with tls.crt and tls.key; empty: no TLS. Kafka and Pulsar only, because their servers open the listener."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the Service."""
    load_balancer_class: str = ""
    """Load balancer class of the Service; empty: the cluster's default. Immutable once the Service exists."""
    load_balancer_source_ranges: tuple[str, ...] = ()
    """Source addresses (CIDR) that the load balancer accepts; empty: all."""

    def __post_init__(self) -> None:
        has_load_balancer_fields = self.load_balancer_class or self.load_balancer_source_ranges
        if has_load_balancer_fields and self.type is not ListenerType.LOAD_BALANCER:
            raise ValueError(
                f"loadBalancerClass and loadBalancerSourceRanges of {self.name}: allowed with type loadbalancer only"
            )
        if (self.type is ListenerType.NODE_PORT) != bool(self.node_port):
            raise ValueError(f"nodePort of {self.name}: required with type nodeport, and allowed with no other type")

    @property
    def client_port(self) -> int:
        """The port that clients connect to."""
        return self.node_port or self.port


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The common values of the pods of one protocol, of the Iceberg REST catalog, or of the compaction workers."""

    enabled: bool = False
    """Whether the tier exists; of the catalog only. Tiers of protocols exist while Streams ask for them."""
    replicas: int = 2
    """Number of pods without autoscaling."""
    autoscaling: Autoscaling | None = None
    port: int = 0
    """Port of the internal listener; 0: the protocol's default."""
    listeners: tuple[TierListener, ...] = ()
    resources: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Server settings of this tier that override the data layer's."""
    drain_seconds: int = 60
    """Time limit for draining: clients disconnect and pending requests finish. The pod's grace period is 30 s longer."""
    disruption_budget: bool = True
    """Whether there is a PodDisruptionBudget."""
    max_unavailable: int = 1
    """`maxUnavailable` of the PodDisruptionBudget."""
    spread_zones: bool = True
    """Prefer to spread pods over zones and nodes."""
    network_policy: bool = True
    """Whether the tier has a NetworkPolicy, if `NetworkPolicies` are enabled."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    priority_class_name: str = ""
    pod_template: Mapping[str, Any] = field(default_factory=dict)
    """Merged into the pod template last, for fields without a value of their own."""

    def __post_init__(self) -> None:
        names = [listener.name.lower().replace("_", "-") for listener in self.listeners]  # part of the Service names
        if len(set(names)) < len(names) or "" in names:
            raise ValueError("every listener needs a unique name")
        if reserved := sorted(set(names) & RESERVED_LISTENER_NAMES):
            raise ValueError(f"listeners: the name {reserved[0]} is reserved; choose another name, such as external")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVariable:
    """An environment variable of every pod, from a Secret."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTls:
    """TLS of the servers' admin API. The files are mounted into all pods, and read again when they change."""

    secret: str
    """Secret with `tls.crt` and `tls.key`, the certificate of all servers and workers."""
    ca_secret: str = ""
    """Secret with the authorities of the certificate; empty: the same Secret."""
    ca_key: str = "ca.crt"
    """Key of the authorities."""
    server_name: str
    """Name in the certificate. Pods are reached by their addresses, which a certificate does not have, so it is verified by this name."""

    def __post_init__(self) -> None:
        if not self.secret or not self.server_name:
            raise ValueError("secret and serverName must not be empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsToken:
    """The Secret with the bearer token that reads only the metrics of servers and workers: Prometheus has it, and not the admin token."""

    secret: str
    key: str = "token"

    def __post_init__(self) -> None:
        if not self.secret or not self.key:
            raise ValueError("secret and key must not be empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """Access to the servers' admin API: the Secret with the bearer token, and an additional address."""

    secret: str
    key: str = "token"
    url: str = ""
    """Address that the operator tries before the tiers' pods, for servers or an operator outside of the cluster; empty: none."""
    tls: AdminTls | None = None
    """Without it, the admin API has no TLS."""
    metrics: MetricsToken | None = None
    """Without it, only the admin token reads metrics."""

    def __post_init__(self) -> None:
        if self.metrics is not None and (self.metrics.secret, self.metrics.key) == (self.secret, self.key):
            raise ValueError("metrics must not be the admin token: it has the same secret and key")

    @property
    def scheme(self) -> str:
        """The scheme of URLs of the pods' admin API."""
        return "http" if self.tls is None else "https"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicies:
    """NetworkPolicies of servers and workers: who reaches which of their ports, and what they reach."""

    enabled: bool = False
    """Whether there are any. They need `admin_from`: without a peer for the operator, it reaches no server."""
    admin_from: tuple[Mapping[str, Any], ...] = ()
    """Peers, in the form of a NetworkPolicy, that reach the admin API and the metrics, besides the data layer's own pods."""
    keda_from: tuple[Mapping[str, Any], ...] = (
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "keda-operator"}},
        },
    )
    """Peers that reach the admin API of workers that KEDA scales: its operator reads their backlog. Name the namespace: in others, whoever
    may create a pod chooses its labels."""
    dns_ports: tuple[int, ...] = (53,)
    """Ports of DNS servers' pods, to which egress is allowed. OpenShift's listen on 5353."""
    egress: tuple[Mapping[str, Any], ...] = ()
    """Egress rules, in the form of a NetworkPolicy, besides DNS and the data layer's own pods. Empty: egress is not limited."""

    def __post_init__(self) -> None:
        if self.enabled and not self.admin_from:
            raise ValueError("adminFrom must name at least the operator's pods")
        if not self.dns_ports or not all(1 <= port <= PORT_MAX for port in self.dns_ports):
            raise ValueError(f"dnsPorts must have ports from 1 to {PORT_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """A Kafka-compatible cluster from which Streams can be imported. Administrators name its address and login; Streams name it."""

    bootstrap: str
    """`host:port` of brokers, with commas."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose Streams may use it; empty: all. Whoever may use it can import every topic that its login can read."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Server settings of its import, such as `imports.source`: TLS, and a login whose password is in one of `files`."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    pod_template: Mapping[str, Any] = field(default_factory=dict)
    """Merged into the pod template last."""

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("bootstrap must not be empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayer:
    """One deployment of Bearlake: the values that all its pods share."""

    settings: Mapping[str, Any]
    admin: AdminAccess
    environment: tuple[SecretVariable, ...] = ()
    files: tuple[str, ...] = ()
    """Secrets that are mounted into every pod at `/etc/bearlake/secrets/<secret>/<key>`. Settings refer to these files. Servers read
    changed contents without a restart."""
    tiers: Mapping[str, Tier] = field(default_factory=dict)
    sources: Mapping[str, ImportSource] = field(default_factory=dict)
    """Clusters from which Streams of the data layer can be imported, by name."""

    def __post_init__(self) -> None:
        for name in self.sources:
            if not _SOURCE_NAME.match(name):
                raise ValueError(f"sources: {name!r} must have 1 to 30 lower-case letters, digits and dashes")
        unknown = set(self.tiers) - {*SERVER_TIERS, COMPACTOR}
        if unknown:
            raise ValueError(
                f"tiers: unknown tier {', '.join(sorted(unknown))}; known tiers are {', '.join((*SERVER_TIERS, COMPACTOR))}"
            )
        for name in (*PROTOCOLS, COMPACTOR):
            if self.tier(name).enabled:
                raise ValueError(
                    f"tiers.{name}.enabled: allowed for {CATALOG} only; {name} exists while resources ask for it"
                )
        for name in SERVER_TIERS:
            secure = [listener.name for listener in self.tier(name).listeners if listener.tls_secret]
            if secure and name not in ADVERTISING_PROTOCOLS:
                raise ValueError(
                    f"tiers.{name}.listeners: tlsSecret of {secure[0]}: supported by kafka and pulsar only; "
                    f"set settings.listeners.{name}.tls_certificate_file and tls_key_file, or terminate TLS before the Service"
                )
            scaling = self.tier(name).autoscaling
            if (
                scaling
                and scaling.mode is ScalingMode.BUILTIN
                and not (scaling.has_rates or scaling.target_cpu_percent)
            ):
                raise ValueError(
                    f"tiers.{name}.autoscaling: mode builtin needs targetRequestsPerSecond or targetBytesPerSecond"
                )
            if scaling and scaling.target_bytes_per_second and name == CATALOG:
                raise ValueError(
                    f"tiers.{name}.autoscaling: targetBytesPerSecond: the catalog counts requests only; set targetRequestsPerSecond"
                )

    def tier(self, name: str) -> Tier:
        """The values of a tier; the defaults if it is not configured."""
        return self.tiers.get(name, Tier())


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of the operator."""

    image: str
    """Image of the protocol servers."""
    compactor_image: str
    """Image of compaction workers, with Java and Spark."""
    data_layers: Mapping[str, DataLayer]
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces of the Streams and Compactors to reconcile; empty: all."""
    stream_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Prefixes of the stream names that Streams of a namespace may have, by namespace (`stream_names.py`). Empty: any name."""
    access_rule_count_max: int = 1000
    """Access rules that the Streams of one namespace may have in one data layer, whose limit is 10,000; 0: no limit. The rules of a Stream
    that needs more are refused. Higher: fewer namespaces can use up the rules of all."""
    access_rule_total_count_max: int = 8000
    """Access rules that the Streams of all namespaces together may have in one data layer, whose limit is 10,000; 0: no limit. The others
    are reserved for administrators, who create rules by other means. Higher: fewer are reserved."""
    network_policies: NetworkPolicies = NetworkPolicies()
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = "bearlake"
    """ServiceAccount of the pods. It has no permissions, and its token is not mounted."""
    spark_service_account: str = ""
    """ServiceAccount of workers that create executor pods; empty: executor pods are not enabled."""
    resync_seconds: int = 60
    """Interval of full reconciliations. They find changes that were made elsewhere, and refresh the figures in statuses."""
    lease_seconds: int = 15
    """Duration of the leader's Lease: time after which another operator takes over from a leader that has failed."""

    def __post_init__(self) -> None:
        if self.access_rule_count_max < 0:
            raise ValueError("accessRuleCountMax must be at least 0")
        if self.access_rule_total_count_max < 0:
            raise ValueError("accessRuleTotalCountMax must be at least 0")
        stream_names.check(self.stream_names)

    def refused_name(self, namespace: str, name: str) -> str:
        """The message for a Stream of this namespace that may not have this stream name, else empty."""
        return stream_names.refused_name(self.stream_names, namespace, name)

    def refused_table(self, namespace: str, configs: Mapping[str, str]) -> str:
        """The message for a Stream of this namespace that may not have the table name in these configs, else empty."""
        return stream_names.refused_table(self.stream_names, namespace, configs)

    def refused_source(self, namespace: str, spec: StreamSpec) -> str:
        """The message for a Stream of this namespace whose source does not exist or that may not use it, else empty."""
        if not spec.source or spec.data_layer not in self.data_layers:
            return ""
        source = self.data_layers[spec.data_layer].sources.get(spec.source)
        if source is None or (source.namespaces and namespace not in source.namespaces):
            return f"The data layer {spec.data_layer!r} has no source {spec.source!r} for the namespace {namespace!r}."
        return ""

    def unknown_data_layer(self, data_layer: str) -> str:
        """The message for a resource with this `dataLayer` if no such data layer is configured, else empty."""
        if data_layer in self.data_layers:
            return ""
        return f"The data layer {data_layer!r} does not exist; configured are {', '.join(self.data_layers)}."


def load(path: Path) -> Settings:
    """Load the settings from a file. Raises `Invalid`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Invalid(f"cannot read the settings in {path}: {error}") from error
    return decoder.decode(Settings, content)
