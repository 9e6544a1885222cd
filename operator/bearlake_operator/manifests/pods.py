"""The pod template of servers and workers: restricted, without an API token, and with what differs from pod to pod in its environment."""

from collections.abc import Mapping, Sequence
from typing import Any

from bearlake_operator.api import MAIN_CONTAINER
from bearlake_operator.manifests import Manifest, config, labels
from bearlake_operator.settings import DataLayer, ListenerType, Settings, Tier, TierListener

USER_ID = 65532
GRACE_MORE_SECONDS = 30
"""Between the end of draining and the kill: for what is under way to the stores."""


def template(
    settings: Settings,
    data_layer: DataLayer,
    name: str,
    tier: Tier,
    *,
    marks: Mapping[str, str],
    config_name: str,
    settings_hash: str,
    account: str = "",
) -> Manifest:
    """The pod template of a tier. `marks` are the labels that select its pods; `account` is a ServiceAccount whose token they get."""
    spec: dict[str, Any] = {
        "serviceAccountName": account or settings.service_account,
        "automountServiceAccountToken": bool(account),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": tier.drain_seconds + GRACE_MORE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, data_layer, name, tier)],
        "volumes": [
            {"name": "settings", "configMap": {"name": config_name}},
            {"name": "admin", "secret": {"secretName": data_layer.admin.secret}},
            {"name": "tmp", "emptyDir": {}},
            *file_volumes(data_layer.files),
            *_tls_volumes(tier),
        ],
        **_placement(tier, marks),
    }
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    whole = {
        "metadata": {"labels": labels.managed(marks), "annotations": {labels.SETTINGS_HASH: settings_hash}},
        "spec": spec,
    }
    return config.merged(whole, tier.pod_template)


def _container(settings: Settings, data_layer: DataLayer, name: str, tier: Tier) -> Manifest:
    is_compactor = name == "compactor"
    probe = {"httpGet": {"path": "/readyz", "port": "admin"}, "timeoutSeconds": 2}
    container: Manifest = {
        "name": MAIN_CONTAINER,
        "image": settings.compactor_image if is_compactor else settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": ["serve", name, "--config", f"{config.FOLDER}/{config.FILE}"],
        "env": [*_own_variables(name, tier), *secret_variables(data_layer)],
        "ports": [
            {"name": port_name(listener), "containerPort": port}
            for listener, port in [
                *config.ports(name, tier).items(),
                *((listener.name, listener.port) for listener in _opened(name, tier)),
                ("admin", config.ADMIN_PORT),
            ]
        ],
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 120},
        "readinessProbe": {**probe, "periodSeconds": 2, "failureThreshold": 3},
        # Whether the process still turns its loop; never whether a store answers: a restart would not mend that.
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "admin"},
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
            {"name": "settings", "mountPath": config.FOLDER, "readOnly": True},
            {"name": "admin", "mountPath": config.TOKEN_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - an emptyDir
            *file_mounts(data_layer.files),
            *_tls_mounts(tier),
        ],
    }
    if tier.resources:
        container["resources"] = tier.resources
    return container


def port_name(listener: str) -> str:
    """A port's name: at most 15 small letters, digits and dashes."""
    return listener.lower().replace("_", "-")[:15].strip("-")


def _own_variables(name: str, tier: Tier) -> list[Manifest]:
    """What only the pod knows: its address, its name, its zone (a label that Kubernetes copies from the node since 1.35)."""
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
        for listener in config.PORTS[name]
    ]
    if opened := _opened(name, tier):
        variables.append({"name": f"BEARLAKE_LISTENERS__{name.upper()}_MORE", "value": _more_listeners(opened)})
    return variables


def _opened(name: str, tier: Tier) -> Sequence[TierListener]:
    return [listener for listener in tier.listeners if config.is_opened(name, tier, listener)]


def _more_listeners(opened: Sequence[TierListener]) -> str:
    """The further listeners as YAML on one line; Kubernetes puts the node's address in."""
    shown = []
    for listener in opened:
        host = listener.advertised_host or ("$(NODE_IP)" if listener.type is ListenerType.NODE_PORT else "$(POD_IP)")
        words = [f"name: {listener.name}", "host: 0.0.0.0", f"port: {listener.port}", f'advertised_host: "{host}"']
        if listener.node_port:
            words.append(f"advertised_port: {listener.node_port}")
        if listener.tls_secret:
            folder = _tls_folder(listener.name)
            words += [f"tls_certificate_file: {folder}/tls.crt", f"tls_key_file: {folder}/tls.key"]
        shown.append("{" + ", ".join(words) + "}")
    return "[" + ", ".join(shown) + "]"


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def secret_variables(data_layer: DataLayer) -> list[Manifest]:
    """Variables from Secrets; a new value counts in new pods."""
    return [
        {"name": one.name, "valueFrom": {"secretKeyRef": {"name": one.secret, "key": one.key}}}
        for one in data_layer.environment
    ]


def file_volumes(secrets: Sequence[str]) -> list[Manifest]:
    """Volumes of Secrets that are files; new contents are there after a minute or two."""
    return [{"name": f"files-{number}", "secret": {"secretName": secret}} for number, secret in enumerate(secrets)]


def file_mounts(secrets: Sequence[str]) -> list[Manifest]:
    """Where these files are."""
    return [
        {"name": f"files-{number}", "mountPath": f"{config.FILES_FOLDER}/{secret}", "readOnly": True}
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


def _placement(tier: Tier, marks: Mapping[str, str]) -> Manifest:
    placed: Manifest = {}
    if tier.spread_zones:
        placed["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(marks)},
            }
            for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ]
    if tier.node_selector:
        placed["nodeSelector"] = dict(tier.node_selector)
    if tier.tolerations:
        placed["tolerations"] = [dict(toleration) for toleration in tier.tolerations]
    if tier.affinity:
        placed["affinity"] = tier.affinity
    if tier.priority_class_name:
        placed["priorityClassName"] = tier.priority_class_name
    return placed
