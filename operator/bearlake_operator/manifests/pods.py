"""The pod template of servers and workers: the restricted security profile, no API token, and per-pod values in environment variables."""

from collections.abc import Mapping, Sequence
from typing import Any

from bearlake_operator.api import MAIN_CONTAINER
from bearlake_operator.manifests import Manifest, labels, server_settings
from bearlake_operator.settings import DataLayer, ListenerType, Settings, Tier, TierListener

USER_ID = 65532
GRACE_EXTRA_SECONDS = 30
"""Time between the end of draining and SIGKILL, for pending writes to the stores."""


def template(
    settings: Settings,
    data_layer: DataLayer,
    name: str,
    tier: Tier,
    *,
    selector_labels: Mapping[str, str],
    config_map_name: str,
    settings_hash: str,
    service_account: str = "",
    arguments: Sequence[str] = (),
) -> Manifest:
    """The pod template of a tier.

    `selector_labels` select its pods; `service_account`: the account whose token is mounted; empty: none. `arguments`: those of `bearlake`,
    without the settings file; empty: `serve` and the tier.
    """
    spec: dict[str, Any] = {
        "serviceAccountName": service_account or settings.service_account,
        "automountServiceAccountToken": bool(service_account),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": tier.drain_seconds + GRACE_EXTRA_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, data_layer, name, tier, arguments or ("serve", name))],
        "volumes": [
            {"name": "settings", "configMap": {"name": config_map_name}},
            {"name": "admin", "secret": {"secretName": data_layer.admin.secret}},
            {"name": "tmp", "emptyDir": {}},
            *file_volumes(data_layer.files),
            *_tls_volumes(tier),
            *_metrics_token_volumes(data_layer),
            *_admin_tls_volumes(data_layer),
        ],
        **_placement(tier, selector_labels),
    }
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    generated = {
        "metadata": {"labels": labels.managed(selector_labels), "annotations": {labels.SETTINGS_HASH: settings_hash}},
        "spec": spec,
    }
    return server_settings.merged(generated, tier.pod_template)


def _container(settings: Settings, data_layer: DataLayer, name: str, tier: Tier, arguments: Sequence[str]) -> Manifest:
    is_compactor = name == "compactor"
    probe = {"httpGet": _probed("/readyz", data_layer), "timeoutSeconds": 2}
    container: Manifest = {
        "name": MAIN_CONTAINER,
        "image": settings.compactor_image if is_compactor else settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [*arguments, "--config", f"{server_settings.FOLDER}/{server_settings.FILE}"],
        "env": [*_pod_variables(name, tier), *_command_line_variables(data_layer), *secret_variables(data_layer)],
        "ports": [
            {"name": port_name(listener), "containerPort": port}
            for listener, port in [
                *server_settings.ports(name, tier).items(),
                *((listener.name, listener.port) for listener in _own_port_listeners(name, tier)),
                ("admin", server_settings.ADMIN_PORT),
            ]
        ],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 120},
        "readinessProbe": {**probe, "periodSeconds": 2, "failureThreshold": 3},
        # Checks that the event loop runs, not that the stores answer: a restart does not repair a store.
        "livenessProbe": {
            "httpGet": _probed("/livez", data_layer),
            "timeoutSeconds": 10,
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "settings", "mountPath": server_settings.FOLDER, "readOnly": True},
            {"name": "admin", "mountPath": server_settings.TOKEN_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir
            *file_mounts(data_layer.files),
            *_tls_mounts(tier),
            *_metrics_token_mounts(data_layer),
            *_admin_tls_mounts(data_layer),
        ],
    }
    if tier.resources:
        container["resources"] = tier.resources
    return container


def _probed(path: str, data_layer: DataLayer) -> Manifest:
    """What a probe asks for. The kubelet presents no certificate and verifies none."""
    action: Manifest = {"path": path, "port": "admin"}
    return action if data_layer.admin.tls is None else {**action, "scheme": "HTTPS"}


def _command_line_variables(data_layer: DataLayer) -> list[Manifest]:
    """Variables for `bearlake` commands in the container, which reach an admin API with TLS as localhost."""
    if data_layer.admin.tls is None:
        return []
    return [
        {"name": "BEARLAKE_ADMIN", "value": f"https://localhost:{server_settings.ADMIN_PORT}"},
        {"name": "BEARLAKE_ADMIN_CA_FILE", "value": server_settings.ADMIN_CA_FILE},
    ]


def _metrics_token_volumes(data_layer: DataLayer) -> list[Manifest]:
    token = data_layer.admin.metrics
    return [] if token is None else [{"name": "metrics", "secret": {"secretName": token.secret}}]


def _metrics_token_mounts(data_layer: DataLayer) -> list[Manifest]:
    if data_layer.admin.metrics is None:
        return []
    return [{"name": "metrics", "mountPath": server_settings.METRICS_TOKEN_FOLDER, "readOnly": True}]


def _admin_tls_volumes(data_layer: DataLayer) -> list[Manifest]:
    tls = data_layer.admin.tls
    if tls is None:
        return []
    own = {"name": tls.secret, "items": [{"key": key, "path": key} for key in ("tls.crt", "tls.key")]}
    authorities = {"name": tls.ca_secret or tls.secret, "items": [{"key": tls.ca_key, "path": "ca.crt"}]}
    return [{"name": "admin-tls", "projected": {"sources": [{"secret": own}, {"secret": authorities}]}}]


def _admin_tls_mounts(data_layer: DataLayer) -> list[Manifest]:
    if data_layer.admin.tls is None:
        return []
    return [{"name": "admin-tls", "mountPath": server_settings.ADMIN_TLS_FOLDER, "readOnly": True}]


def port_name(listener: str) -> str:
    """The name of a listener's port: at most 15 lower-case letters, digits and dashes."""
    return listener.lower().replace("_", "-")[:15].strip("-")


def _pod_variables(name: str, tier: Tier) -> list[Manifest]:
    """Variables with per-pod values: address, name, and zone (a label that Kubernetes copies from the node since 1.35)."""
    zone = "metadata.labels['topology.kubernetes.io/zone']"
    variables: list[Manifest] = [
        _field("POD_IP", "status.podIP"),
        _field("NODE_IP", "status.hostIP"),
        _field("BEARLAKE_SERVER__NAME", "metadata.name"),
        _field("BEARLAKE_SERVER__ZONE", zone),
        {"name": "BEARLAKE_ADMIN__ADVERTISED_HOST", "value": "$(POD_IP)"},
    ]
    variables += [
        {"name": f"BEARLAKE_LISTENERS__{listener.upper()}__ADVERTISED_HOST", "value": "$(POD_IP)"}
        for listener in server_settings.PORTS[name]
    ]
    if listeners := _own_port_listeners(name, tier):
        variables.append({"name": f"BEARLAKE_LISTENERS__{name.upper()}_MORE", "value": _listeners_yaml(listeners)})
    return variables


def _own_port_listeners(name: str, tier: Tier) -> Sequence[TierListener]:
    return [listener for listener in tier.listeners if server_settings.opens_own_port(name, tier, listener)]


def _listeners_yaml(listeners: Sequence[TierListener]) -> str:
    """The listeners as YAML on one line. Kubernetes substitutes the addresses of the node and the pod."""
    items = []
    for listener in listeners:
        host = listener.advertised_host or ("$(NODE_IP)" if listener.type is ListenerType.NODE_PORT else "$(POD_IP)")
        fields = [f"name: {listener.name}", "host: 0.0.0.0", f"port: {listener.port}", f'advertised_host: "{host}"']
        if listener.node_port:
            fields.append(f"advertised_port: {listener.node_port}")
        if listener.tls_secret:
            folder = _tls_folder(listener.name)
            fields += [f"tls_certificate_file: {folder}/tls.crt", f"tls_key_file: {folder}/tls.key"]
        items.append("{" + ", ".join(fields) + "}")
    return "[" + ", ".join(items) + "]"


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def secret_variables(data_layer: DataLayer) -> list[Manifest]:
    """Variables from Secrets. A changed value takes effect in new pods only."""
    return [
        {"name": variable.name, "valueFrom": {"secretKeyRef": {"name": variable.secret, "key": variable.key}}}
        for variable in data_layer.environment
    ]


def file_volumes(secrets: Sequence[str]) -> list[Manifest]:
    """Volumes of Secrets that are mounted as files. The kubelet updates the files within a minute or two."""
    return [{"name": f"files-{number}", "secret": {"secretName": secret}} for number, secret in enumerate(secrets)]


def file_mounts(secrets: Sequence[str]) -> list[Manifest]:
    """The mounts of `file_volumes`."""
    return [
        {"name": f"files-{number}", "mountPath": f"{server_settings.FILES_FOLDER}/{secret}", "readOnly": True}
        for number, secret in enumerate(secrets)
    ]


def _tls_folder(listener: str) -> str:
    return f"/etc/bearlake/tls/{listener.lower()}"


def _tls_volumes(tier: Tier) -> Sequence[Manifest]:
    return [
        {"name": f"tls-{listener.name.lower()}", "secret": {"secretName": listener.tls_secret}}
        for listener in tier.listeners
        if listener.tls_secret
    ]


def _tls_mounts(tier: Tier) -> Sequence[Manifest]:
    return [
        {"name": f"tls-{listener.name.lower()}", "mountPath": _tls_folder(listener.name), "readOnly": True}
        for listener in tier.listeners
        if listener.tls_secret
    ]


def _placement(tier: Tier, selector_labels: Mapping[str, str]) -> Manifest:
    placement: Manifest = {}
    if tier.spread_zones:
        placement["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(selector_labels)},
            }
            for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ]
    if tier.node_selector:
        placement["nodeSelector"] = dict(tier.node_selector)
    if tier.tolerations:
        placement["tolerations"] = [dict(toleration) for toleration in tier.tolerations]
    if tier.affinity:
        placement["affinity"] = tier.affinity
    if tier.priority_class_name:
        placement["priorityClassName"] = tier.priority_class_name
    return placement
