"""The operator's settings document: what the chart's values say, rendered into one YAML file that this process reads at its start.

    image, watchNamespaces …
    dataLayers:
      default:
        settings: {…}              # the settings document of Bearlake's servers, common to all pods of the data layer
        environment: [{name, secret, key}]
        files: [secret]
        admin: {secret, key}
        tiers: {kafka: {…}, rest: {…}, compactor: {…}}

An example that the tests read is `example.yaml`. The chart renders exactly this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from bearlake_operator import document
from bearlake_operator.errors import Invalid

PROTOCOLS = ("kafka", "pulsar", "rest", "grpc")
LISTENER_NAMES_TAKEN = frozenset({*PROTOCOLS, "pulsar-http", "registry", "admin", "pods"})
"""What ports and Services of tiers are called already; small letters, digits and dashes."""
SCALING_SECONDS_MAX = 3600
"""Longest time for which an autoscaler looks back. Source: Kubernetes, HPAScalingRules."""
ADVERTISING = ("kafka", "pulsar")
"""Protocols whose servers tell clients addresses: they open further listeners themselves, each with addresses of its own."""
COMPACTOR = "compactor"


class ScalingMode(Enum):
    """Where the metric of an autoscaler comes from."""

    CPU = "cpu"
    """CPU by metrics-server."""
    BUILTIN = "builtin"
    """Requests, bytes and backlog by Bearlake's own metrics API, which the chart installs."""
    KEDA = "keda"
    """ScaledObjects are made instead of autoscalers: servers by CPU, workers by the backlog, which KEDA asks them for."""


class ListenerType(Enum):
    """How clients reach a listener."""

    INTERNAL = "internal"
    """From inside the cluster: clients are told the pods' addresses."""
    NODE_PORT = "nodeport"
    """Through a port of the nodes; clients are told their server's node."""
    LOAD_BALANCER = "loadbalancer"
    """Through one load balancer for all pods: any server serves any partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """Number of pods of a tier by load."""

    mode: ScalingMode = ScalingMode.CPU
    min_replicas: int = 2
    max_replicas: int = 10
    target_cpu_percent: int | None = None
    """Of the CPU request. A server saturates at one core: leave room for the time until new pods serve. Null: 65 with `cpu` and `keda`;
    with `builtin` CPU is not looked at, so that no metrics-server is needed."""
    target_requests_per_second: int = 0
    """Per pod, with `builtin`; 0: not looked at."""
    target_bytes_per_second: int = 0
    """Per pod, received and sent, with `builtin`; 0: not looked at."""
    scale_up_seconds: int = 0
    """Time for which more pods must be wanted before they are made."""
    scale_down_seconds: int | None = None
    """Time for which fewer pods must be wanted before one goes. Null: 900 for servers, each of which makes its clients connect anew; 300
    for workers, which have no clients."""

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
        """Whether requests or bytes are looked at."""
        return bool(self.target_requests_per_second or self.target_bytes_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierListener:
    """One address of a tier beside the internal one that every tier has."""

    name: str
    type: ListenerType
    port: int
    """Port of its Service. That of an internal listener which tells no addresses (Pulsar's HTTP API, the schema registry) leads to it."""
    node_port: int = 0
    """Port of the nodes, with the type `nodeport`: servers tell it to clients, so that it must be known before there is a Service."""
    advertised_host: str = ""
    """Host that clients are told; empty: the address of their server's node, or what the load balancer got."""
    tls_secret: str = ""
    """Secret with tls.crt and tls.key; empty: no TLS. For Kafka and Pulsar only, whose servers open the listener themselves."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the Service."""
    load_balancer_class: str = ""
    """Who makes the load balancer; empty: the cluster's default. A Service keeps the one that it has been made with."""
    load_balancer_source_ranges: tuple[str, ...] = ()
    """Addresses (CIDR) that the load balancer lets in; empty: all."""

    def __post_init__(self) -> None:
        balancing = self.load_balancer_class or self.load_balancer_source_ranges
        if balancing and self.type is not ListenerType.LOAD_BALANCER:
            raise ValueError(
                f"loadBalancerClass and loadBalancerSourceRanges of {self.name}: only a listener of the type loadbalancer has them"
            )
        if (self.type is ListenerType.NODE_PORT) != bool(self.node_port):
            raise ValueError(
                f"nodePort of {self.name}: a listener of the type nodeport needs one, and no other has one"
            )

    @property
    def client_port(self) -> int:
        """The port that clients are told."""
        return self.node_port or self.port


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The pods of one protocol, or of compaction: what all of them have in common."""

    replicas: int = 2
    """Number of pods where nothing scales them."""
    autoscaling: Autoscaling | None = None
    port: int = 0
    """Port of the internal listener; 0: the protocol's own."""
    listeners: tuple[TierListener, ...] = ()
    resources: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What of the data layer's settings differs in this tier."""
    drain_seconds: int = 60
    """Longest time to let clients go and to finish what is under way; the grace period is 30 s longer."""
    disruption_budget: bool = True
    """Whether there is a PodDisruptionBudget."""
    max_unavailable: int = 1
    """Pods that voluntary disruptions may take at once."""
    spread_zones: bool = True
    """Spread pods over zones and nodes, as far as it goes."""
    network_policy: bool = False
    """Let in the tier's own ports only."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    priority_class_name: str = ""
    pod_template: Mapping[str, Any] = field(default_factory=dict)
    """Merged into the pod template last: for what no other value says."""

    def __post_init__(self) -> None:
        names = [listener.name.lower().replace("_", "-") for listener in self.listeners]  # parts of Services' names
        if len(set(names)) < len(names) or "" in names:
            raise ValueError("every listener needs a name of its own")
        if taken := sorted(set(names) & LISTENER_NAMES_TAKEN):
            raise ValueError(f"listeners: the name {taken[0]} is taken; give it another one, such as outside")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVariable:
    """An environment variable of every pod, from a Secret."""

    name: str
    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """The data plane's admin API: the Secret with its bearer token, and where it is beside the tiers' pods."""

    secret: str
    key: str = "token"
    url: str = ""
    """Address that is asked first, for servers or an operator outside of the cluster; empty: only the tiers' pods are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayer:
    """What the pods of one deployment of Bearlake share."""

    settings: Mapping[str, Any]
    admin: AdminAccess
    environment: tuple[SecretVariable, ...] = ()
    files: tuple[str, ...] = ()
    """Secrets that every pod has as files, `/etc/bearlake/secrets/<secret>/<key>`: settings name these files, and new contents count
    without new pods."""
    tiers: Mapping[str, Tier] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.tiers) - {*PROTOCOLS, COMPACTOR}
        if unknown:
            raise ValueError(
                f"tiers: unknown {', '.join(sorted(unknown))}; known are {', '.join((*PROTOCOLS, COMPACTOR))}"
            )
        for name in PROTOCOLS:
            secure = [listener.name for listener in self.tier(name).listeners if listener.tls_secret]
            if secure and name not in ADVERTISING:
                raise ValueError(
                    f"tiers.{name}.listeners: tlsSecret of {secure[0]}: listeners of kafka and pulsar have one; "
                    f"give settings.listeners.{name}.tls_certificate_file and tls_key_file, or end TLS before the Service"
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

    def tier(self, name: str) -> Tier:
        """The values of a tier, or the defaults."""
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
    """Namespaces whose Streams and Compactors are reconciled; empty: all."""
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = "bearlake"
    """Of the pods; it has no rights, and its token is not mounted."""
    spark_service_account: str = ""
    """Of workers whose executors are pods, which it may make; empty: there are none."""
    resync_seconds: int = 60
    """How often everything is looked at though nothing has changed: what was changed elsewhere is found, figures are brought up to date."""
    lease_seconds: int = 15
    """Time after which another operator takes over from one that is gone."""

    def refusal_of(self, data_layer: str) -> str:
        """What to tell a resource that names this data layer; empty when there is one."""
        if data_layer in self.data_layers:
            return ""
        return f"There is no data layer {data_layer!r}; there are {', '.join(self.data_layers)}."


def load(path: Path) -> Settings:
    """The settings in a file. Raises `Invalid`."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Invalid(f"cannot read the settings in {path}: {error}") from error
    return document.read(Settings, content)
