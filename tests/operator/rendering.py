"""The manifests of some scenarios as YAML; `python tests/operator/rendering.py` writes the golden files."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import yaml
from typing_extensions import override

GOLDEN = Path(__file__).parent / "golden"
REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "operator"))

from bearlake_operator import api, settings  # noqa: E402
from bearlake_operator.manifests import Manifest, compactor, importer, tier  # noqa: E402
from bearlake_operator.settings import (  # noqa: E402
    Autoscaling,
    ImportSource,
    ListenerType,
    NetworkPolicies,
    ScalingMode,
    Settings,
    Tier,
    TierListener,
)


def example() -> Settings:
    """Return the operator's example settings."""
    return settings.load(REPOSITORY / "operator/bearlake_operator/example.yaml")


def with_tier(name: str, values: Tier) -> Settings:
    """The example settings with other values for one tier."""
    layer = example().data_layers["default"]
    return replace(example(), data_layers={"default": replace(layer, tiers={**layer.tiers, name: values})})


def compactor_resource(**spec: object) -> api.Resource:
    """Return a Compactor with this spec."""
    return {"metadata": {"namespace": "team-a", "name": "main"}, "spec": spec}


def of_compactor(values: Settings, streams: Sequence[str] = (), **spec: object) -> list[Manifest]:
    """Return the manifests of a Compactor with this spec."""
    parsed = api.compactor_spec(compactor_resource(**spec))
    return compactor.objects(values, parsed, namespace="bearlake", replicas=parsed.replicas, streams=streams)


def everything() -> Tier:
    """A tier that uses every value."""
    return Tier(
        autoscaling=Autoscaling(
            mode=ScalingMode.BUILTIN, target_requests_per_second=2_000, target_bytes_per_second=50_000_000
        ),
        port=19092,
        listeners=(
            TierListener(
                name="PUBLIC",
                type=ListenerType.LOAD_BALANCER,
                port=9095,
                advertised_host="kafka.example.com",
                tls_secret="kafka-public",
                annotations={"example.com/scheme": "internet-facing"},
                load_balancer_class="example.com/nlb",
                load_balancer_source_ranges=("10.0.0.0/8", "fd00::/8"),
            ),
        ),
        settings={"kafka": {"auto_create_streams": False}},
        drain_seconds=120,
        spread_zones=False,
        node_selector={"pool": "streams"},
        tolerations=({"key": "streams", "operator": "Exists"},),
        affinity={"podAntiAffinity": {}},
        priority_class_name="high",
        pod_template={"metadata": {"annotations": {"example.com/team": "data"}}, "spec": {"hostNetwork": False}},
    )


def guarded(values: Settings) -> Settings:
    """The settings with limits of the network."""
    prometheus = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
    stores = {"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}], "ports": [{"port": 5432, "protocol": "TCP"}]}
    policies = NetworkPolicies(enabled=True, admin_from=(prometheus,), egress=(stores,))
    return replace(values, network_policies=policies)


def outside(protocol: str, listener: TierListener) -> list[Manifest]:
    """Return the manifests of a tier with this listener."""
    return tier.objects(with_tier(protocol, Tier(listeners=(listener,))), "default", protocol)


def with_source() -> Settings:
    """The example settings with a source that logs in."""
    source = ImportSource(
        bootstrap="kafka-1.example.com:9093,kafka-2.example.com:9093",
        settings={
            "imports": {
                "source": {
                    "tls": True,
                    "mechanism": "SCRAM-SHA-512",
                    "user": "bearlake",
                    "password_file": "/etc/bearlake/secrets/old-kafka/password",
                }
            }
        },
        resources={"requests": {"cpu": "1"}},
    )
    layer = example().data_layers["default"]
    changed = replace(layer, files=(*layer.files, "old-kafka"), sources={"old": source})
    return replace(example(), data_layers={"default": changed})


SCENARIOS: dict[str, Callable[[], list[Manifest]]] = {
    "kafka": lambda: tier.objects(example(), "default", "kafka"),
    "kafka-everything": lambda: tier.objects(guarded(with_tier("kafka", everything())), "default", "kafka"),
    "kafka-keda": lambda: tier.objects(
        with_tier("kafka", Tier(autoscaling=Autoscaling(mode=ScalingMode.KEDA))), "default", "kafka"
    ),
    "rest": lambda: tier.objects(example(), "default", "rest"),
    "grpc": lambda: tier.objects(example(), "default", "grpc"),
    "catalog": lambda: tier.objects(guarded(example()), "default", "catalog"),
    "pulsar": lambda: tier.objects(example(), "default", "pulsar"),
    "pulsar-outside": lambda: outside(
        "pulsar", TierListener(name="OUT", type=ListenerType.NODE_PORT, port=6660, node_port=30660)
    ),
    "pulsar-http-outside": lambda: outside(
        "pulsar", TierListener(name="ADMIN-OUT", type=ListenerType.NODE_PORT, port=8080, node_port=30080)
    ),
    "import": lambda: importer.objects(guarded(with_source()), "default", "old", ["orders.us", "orders.eu"]),
    "compactor-guarded": lambda: of_compactor(guarded(example())),
    "rest-outside": lambda: outside(
        "rest", TierListener(name="registry-out", type=ListenerType.LOAD_BALANCER, port=8081)
    ),
    "compactor": lambda: of_compactor(example()),
    "compactor-backlog": lambda: of_compactor(
        with_tier("compactor", Tier(autoscaling=Autoscaling(mode=ScalingMode.BUILTIN))),
        autoscaling={"maxReplicas": 5, "targetBacklogBytes": "1Gi"},
        spark={"master": "spark://spark.example.com:7077", "conf": {"spark.executor.instances": "4"}},
    ),
    "compactor-spark": lambda: of_compactor(
        guarded(replace(example(), spark_service_account="bearlake-spark")),
        spark={
            "master": "k8s://https://kubernetes.default.svc",
            "executors": {"count": 4, "cores": 2, "memory": "2Gi"},
            "conf": {"spark.kubernetes.executor.request.cores": "500m"},
        },
    ),
    "compactor-keda": lambda: of_compactor(
        guarded(with_tier("compactor", Tier(autoscaling=Autoscaling(mode=ScalingMode.KEDA)))),
        autoscaling={"maxReplicas": 5},
    ),
    "compactor-streams": lambda: of_compactor(
        with_tier("compactor", Tier(autoscaling=Autoscaling(mode=ScalingMode.KEDA))),
        ("orders-*", "events"),
        autoscaling={"maxReplicas": 5},
        priorities=[{"streams": "orders-eu", "priority": 10}, {"streams": "orders-*", "priority": 5}],
    ),
}


class Dumper(yaml.SafeDumper):
    """Writes multi-line strings as blocks, and no aliases."""

    @override
    def ignore_aliases(self, data: object) -> bool:
        return True


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def render(scenario: str) -> str:
    """Return the YAML of a scenario."""
    return yaml.dump_all(SCENARIOS[scenario](), Dumper=Dumper, sort_keys=True, width=120)


if __name__ == "__main__":
    for name in SCENARIOS:
        (GOLDEN / f"{name}.yaml").write_text(render(name))
