"""The control plane: etcd, apiserver, controller-manager and scheduler, on the host."""

import shutil

from layout import BIN, ETCD, ETCD_PEER, HOST, LOG, PKI, SERVICE_CIDR, STATE
from trees import spawn, supervise

KUBE = str(BIN / "kube")


def main() -> None:
    """Run the control plane as the first process of its tree; it starts without stored state."""
    shutil.rmtree(STATE / "etcd", ignore_errors=True)
    programs = [
        spawn("etcd", "etcd", *_etcd(), log=LOG),
        spawn("apiserver", KUBE, "apiserver", *_apiserver(), log=LOG),
        spawn("controller-manager", KUBE, "controller-manager", *_controllers(), log=LOG),
        spawn(
            "scheduler",
            *(KUBE, "scheduler", f"--kubeconfig={PKI}/scheduler.kubeconfig"),
            *("--leader-elect=false", "--bind-address=127.0.0.1"),
            log=LOG,
        ),
    ]
    supervise(dict(programs))


def _etcd() -> list[str]:
    return [
        f"--data-dir={STATE}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={ETCD_PEER}",
        f"--initial-advertise-peer-urls={ETCD_PEER}",
        f"--initial-cluster=default={ETCD_PEER}",
    ]


def _apiserver() -> list[str]:
    return [
        f"--etcd-servers={ETCD}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--tls-cert-file={PKI}/apiserver.crt",
        f"--tls-private-key-file={PKI}/apiserver.key",
        f"--client-ca-file={PKI}/ca.crt",
        f"--service-account-key-file={PKI}/sa.pub",
        f"--service-account-signing-key-file={PKI}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={PKI}/kubelet-client.crt",
        f"--kubelet-client-key={PKI}/kubelet-client.key",
        f"--kubelet-certificate-authority={PKI}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        # Aggregated APIs (metrics): the names that the front proxy's certificate may have, and the address type for calls to them.
        f"--requestheader-client-ca-file={PKI}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--enable-aggregator-routing=true",
        f"--proxy-client-cert-file={PKI}/front-proxy.crt",
        f"--proxy-client-key-file={PKI}/front-proxy.key",
        # A dead node's pods move after seconds instead of minutes.
        "--default-not-ready-toleration-seconds=5",
        "--default-unreachable-toleration-seconds=5",
    ]


def _controllers() -> list[str]:
    return [
        f"--kubeconfig={PKI}/controller-manager.kubeconfig",
        f"--service-account-private-key-file={PKI}/sa.key",
        f"--root-ca-file={PKI}/ca.crt",
        f"--cluster-signing-cert-file={PKI}/ca.crt",
        f"--cluster-signing-key-file={PKI}/ca.key",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--node-monitor-grace-period=20s",
        # Autoscaling in seconds instead of minutes.
        "--horizontal-pod-autoscaler-sync-period=5s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=5s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=30s",
        "--horizontal-pod-autoscaler-downscale-stabilization=20s",
    ]
