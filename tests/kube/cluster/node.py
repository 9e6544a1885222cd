"""A node: containerd, kubelet and kube-proxy in their own network, mount, pid and host-name namespaces."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import images
import layout
from commands import run, succeeds, wait, write_json
from layout import BIN, DNS_SERVICE, HOST, IMAGES, LOG, PKI, STATE
from trees import spawn, supervise

SYSTEM_DIRECTORIES = ("/var/lib/cni", "/var/log/containers")
"""Host folders into which the node's programs would write; a tmpfs hides them inside the node."""


def main(index: int) -> None:
    """Run the node as the first process of its tree."""
    name = layout.node_name(index)
    home, log = STATE / name, LOG / name
    for directory in (home / "containerd", home / "kubelet", home / "cni", log / "pods"):
        directory.mkdir(parents=True, exist_ok=True)
    _isolate(name)
    _join(index)
    write_json(home / "cni/10-pods.conflist", _cni(index))
    (home / "containerd.toml").write_text(_containerd(home))
    write_json(home / "kubelet.json", _kubelet(name, home, log))
    write_json(home / "proxy.json", _proxy(name))
    programs = [spawn("containerd", "containerd", "--config", f"{home}/containerd.toml", log=log)]
    wait("containerd", lambda: succeeds("ctr", "version"))
    for addon in layout.ADDONS:
        import_image(IMAGES / f"{addon}.tar", [])
    zone = f"topology.kubernetes.io/zone=az{index},topology.kubernetes.io/region=test"
    programs += [
        spawn(
            "kubelet",
            *(f"{BIN}/kube", "kubelet", f"--config={home}/kubelet.json", f"--root-dir={home}/kubelet"),
            *(f"--kubeconfig={PKI}/{name}.kubeconfig", f"--hostname-override={name}"),
            *(f"--node-ip={layout.node_address(index)}", f"--node-labels={zone}"),
            log=log,
        ),
        spawn("proxy", f"{BIN}/kube", "proxy", f"--config={home}/proxy.json", log=log),
    ]
    supervise(dict(programs))


def import_image(image: Path, prefix: list[str]) -> None:
    """Put an image, an archive or the folder of an OCI layout, into the store of the node that `prefix` enters."""
    command = [*prefix, "ctr", "--namespace", "k8s.io"]
    if not image.is_dir():
        run(*command, "images", "import", str(image))
        return
    listed = subprocess.run([*command, "content", "ls", "--quiet"], capture_output=True, text=True, check=True).stdout
    there = {digest.removeprefix("sha256:") for digest in listed.split()}
    with subprocess.Popen(
        [*command, "images", "import", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        with process.stdin:
            images.write_archive(image, there, process.stdin)
    if process.returncode:
        sys.exit(f"{image} could not be imported")


def tag_image(reference: str, other: str, prefix: list[str]) -> None:
    """Give an image of the node's store an additional name."""
    run(*prefix, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", reference, other)


def _isolate(name: str) -> None:
    run("hostname", name)
    run("mount", "--make-rshared", "/")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for directory in SYSTEM_DIRECTORIES:
        os.makedirs(directory, exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", directory)


def _join(index: int) -> None:
    """Take the address, once the host has plugged `eth0` in, and route the other nodes' pods."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    run("ip", "link", "set", "lo", "up")
    wait("eth0", lambda: succeeds("ip", "link", "show", "eth0"))
    run("ip", "addr", "add", f"{layout.node_address(index)}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", HOST)
    for other in range(1, layout.NODE_COUNT_MAX + 1):
        if other != index:
            run("ip", "route", "add", layout.pod_cidr(other), "via", layout.node_address(other))


def _cni(index: int) -> dict[str, Any]:
    """One routed veth per pod: with a bridge, Services between pods of one node would need br_netfilter."""
    ranges = [[{"subnet": layout.pod_cidr(index)}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _containerd(home: Path) -> str:
    """restrict_oom_score_adj: without CAP_SYS_RESOURCE a sandbox may not lower its score and would not start."""
    return f"""version = 2
root = "{home}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{layout.PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{home}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def _kubelet(name: str, home: Path, log: Path) -> dict[str, Any]:
    (home / "resolv.conf").write_text(f"nameserver {DNS_SERVICE}\n")  # the cluster resolves no outside names
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/bearlake/{name}",
        "failCgroupV1": False,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{PKI}/{name}.crt",
        "tlsPrivateKeyFile": f"{PKI}/{name}.key",
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_SERVICE],
        "resolvConf": f"{home}/resolv.conf",
        "podLogsDir": f"{log}/pods",
        "failSwapOn": False,
        "maxPods": 100,
        "serializeImagePulls": False,
        "imageGCHighThresholdPercent": 100,  # nothing could fetch a deleted image again
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
    }


def _proxy(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "iptables": {"minSyncPeriod": "100ms"},
        "hostnameOverride": name,
        "clusterCIDR": layout.POD_CIDR,
        "clientConnection": {"kubeconfig": f"{PKI}/proxy.kubeconfig"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
