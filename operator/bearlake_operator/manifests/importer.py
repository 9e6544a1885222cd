"""All objects of an import: the ConfigMap, the Deployment with its one pod, and the NetworkPolicy.

The pod runs `bearlake import kafka --follow` for all Streams of a data layer that name the same source. An update ends the old pod before
the new one starts: two would fence each other, because their registrations have the same name.
"""

import re
from collections.abc import Sequence

from bearlake_operator.manifests import Manifest, labels, pods, server_settings
from bearlake_operator.manifests.deployment import deployment
from bearlake_operator.manifests.network_policy import network_policy
from bearlake_operator.settings import Settings, Tier

IMPORT = "import"


def objects(settings: Settings, layer: str, source: str, streams: Sequence[str]) -> list[Manifest]:
    """The desired objects, without owner: the import of these streams from a source of the data layer."""
    data_layer = settings.data_layers[layer]
    values = data_layer.sources[source]
    tier = Tier(
        replicas=1,
        resources=values.resources,
        settings=server_settings.merged(data_layer.tier(IMPORT).settings, values.settings),
        pod_template=values.pod_template,
    )
    name = labels.import_name(layer, source)
    selector_labels = labels.import_selector(layer, source)
    content = server_settings.document(data_layer, IMPORT, tier)
    topics = [word for stream in sorted(streams) for word in ("--topics", re.escape(stream))]
    template = pods.template(
        settings,
        data_layer,
        IMPORT,
        tier,
        selector_labels=selector_labels,
        config_map_name=name,
        settings_hash=server_settings.settings_hash(content),
        arguments=[
            "import", "kafka", "--from", values.bootstrap, *topics, "--follow",
            "--admin-port", str(server_settings.ADMIN_PORT),
        ],
    )  # fmt: skip
    made = deployment(name, selector_labels, template, replicas=1)
    made["spec"]["strategy"] = {"type": "Recreate"}
    found = [server_settings.config_map(name, content, selector_labels), made]
    if settings.network_policies.enabled:
        found.append(network_policy(name, selector_labels, settings.network_policies))
    return found
