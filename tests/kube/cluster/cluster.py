#!/usr/bin/env python3
"""A real Kubernetes cluster for tests, without Docker, systemd or an image registry.

    cluster.py check               list what this machine lacks for a cluster
    cluster.py build               install what Debian has (as root), compile the programs (needs Go) and pack the add-on images
    cluster.py up [--nodes N]      start; returns when every node is Ready and the add-ons are available
    cluster.py images              build the product's images and stand-ins for third-party images, and put them into every node
    cluster.py image TAG DOCKERFILE CONTEXT   build one image with buildah and put it into every node
    cluster.py load IMAGE...       put images (archives, or folders with an OCI layout) into every node
    cluster.py env                 print the shell lines that point kubectl and helm at the cluster
    cluster.py down [--purge]      stop; --purge also forgets images, certificates, logs and programs

API server, controllers and scheduler run on the host; each node (containerd, kubelet, kube-proxy) in namespaces of its
own (`trees.py`), in a zone of its own; the host reaches pods and Services by routes. Needs root and what `machine.py` lists.
Everything on disk is below ~/.cache/bearlake/kube, or $BEARLAKE_KUBE.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import certificates
import cgroups
import control
import images
import layout
import machine
import node
import trees
from commands import kubectl, run, wait
from layout import BIN, BRIDGE, HERE, HOST, IMAGES, KUBECONFIG, LOG, PKI, RUN, STATE

SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
"""Machine-wide settings that the kubelet changes; `down` restores the old values."""


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").set_defaults(do=lambda _: machine.check())
    commands.add_parser("build").set_defaults(do=lambda _: build())
    command = commands.add_parser("up")
    command.add_argument("--nodes", type=int, default=2, choices=range(1, layout.NODE_COUNT_MAX + 1))
    command.set_defaults(do=lambda options: up(options.nodes))
    commands.add_parser("images").set_defaults(do=lambda _: build_images())
    command = commands.add_parser("image")
    command.add_argument("tag")
    command.add_argument("dockerfile", type=Path)
    command.add_argument("context", type=Path)
    command.add_argument("--target", help="stage of the Dockerfile")
    command.set_defaults(do=lambda o: load([images.build(o.tag, o.dockerfile, o.context, o.target)], None))
    command = commands.add_parser("load")
    command.add_argument("--node", action="append", help="only into this node; may be repeated")
    command.add_argument("images", nargs="+", type=Path)
    command.set_defaults(do=lambda options: load(options.images, options.node))
    commands.add_parser("env").set_defaults(do=lambda _: env())
    command = commands.add_parser("down")
    command.add_argument("--purge", action="store_true")
    command.set_defaults(do=lambda options: down(options.purge))
    commands.add_parser("control", description="internal").set_defaults(do=lambda _: control.main())
    command = commands.add_parser("node", description="internal")
    command.add_argument("index", type=int)
    command.set_defaults(do=lambda options: node.main(options.index))
    options = parser.parse_args()
    options.do(options)


def build() -> None:
    """Compile the programs into BIN and pack the add-on images; quick when Go's cache is warm."""
    machine.install()
    machine.check()
    programs = HERE / "programs"
    # The programs parse their own version, which the linker has to give them.
    lines = (programs / "go.mod").read_text().splitlines()
    version = next(line.split()[-1] for line in lines if "k8s.io/kubernetes v" in line)
    major, minor, _ = version[1:].split(".")
    flags = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    link = "-s -w " + " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in flags.items())
    BIN.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    what = (".", "./pause", "./coredns", "tool")
    run("go", "build", "-trimpath", "-ldflags", link, "-o", f"{BIN}/", *what, cwd=programs, env=environment)
    (BIN / "kubectl").unlink(missing_ok=True)
    (BIN / "kubectl").symlink_to("kube")
    gateway = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"  # the S3-compatible store of the quickstart
    run("go", "install", "-trimpath", "-ldflags", "-s -w", gateway, cwd=BIN, env=environment | {"GOBIN": str(BIN)})
    IMAGES.mkdir(exist_ok=True)
    for name in (*layout.ADDONS, "versitygw"):
        images.pack(IMAGES / f"{name}.tar", f"bearlake.test/{name}:1", BIN / name, user="65532:65532")


def build_images() -> None:
    """Build what the tests install; unchanged steps come from buildah's cache."""
    repository = HERE.parents[2]
    stand_ins = HERE.parent / "images"
    built = [
        images.build("bearlake.test/operator:test", repository / "operator/Dockerfile", repository),
        images.build("bearlake.test/server:test", repository / "servers/Dockerfile", repository, "server"),
        images.build("bearlake.test/compactor:test", repository / "servers/Dockerfile", repository, "compactor"),
        images.build(
            "bearlake.test/clients:test",
            stand_ins / "clients/Dockerfile",
            repository / "servers/bearlake/protocols/grpc/proto",
        ),
        images.build("bearlake.test/postgresql:test", stand_ins / "postgresql/Dockerfile", stand_ins / "postgresql"),
        IMAGES / "versitygw.tar",
    ]
    load(built, None)
    for name in _node_names():  # the images of upgrade tests
        for image in ("operator", "server", "compactor"):
            node.tag_image(f"bearlake.test/{image}:test", f"bearlake.test/{image}:next", trees.inside(name))


def up(node_count: int) -> None:
    """Start what does not run yet and wait until the cluster is usable."""
    machine.check()
    if not (BIN / "kube").exists():
        sys.exit("first: cluster.py build")
    started = time.monotonic()
    for directory in (LOG, RUN, PKI):
        directory.mkdir(parents=True, exist_ok=True)
    certificates.make()
    _save_sysctls()
    if not Path("/sys/class/net", BRIDGE).exists():
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{HOST}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
    if not trees.first_pid("control"):
        trees.start("control", [], "control")
    names = {layout.node_name(index): index for index in range(1, node_count + 1)}
    for name, index in names.items():
        if not trees.first_pid(name):
            cgroups.make(name)
            trees.start(name, ["--net", "--uts"], "node", str(index))
            _plug_in(name, index)  # the node waits for this
    wait("apiserver", lambda: kubectl("get", "--raw", "/readyz", check=False).returncode == 0)
    _report(started, "apiserver ready")
    kubectl("apply", "-f", str(HERE / "addons.yaml"))
    wait("nodes", lambda: _ready_nodes() >= set(names))
    _report(started, "nodes Ready: " + " ".join(names))
    for deployment in ("coredns", "metrics-server"):
        kubectl("-n", "kube-system", "rollout", "status", f"deployment/{deployment}", "--timeout=180s")
    wait("default service account", lambda: kubectl("get", "serviceaccount", "default", check=False).returncode == 0)
    _report(started, "add-ons available")


def down(is_purge: bool) -> None:
    """End every process of the cluster and remove what it left on the machine."""
    names = trees.names()
    for name in names:
        trees.kill(name)
    for link in (*(f"bl-{name}" for name in names), BRIDGE):  # this also removes the routes
        subprocess.run(["ip", "link", "del", link], capture_output=True)
    wait("removal of cgroups", cgroups.remove)
    _restore_sysctls()
    for data in (STATE / "etcd", *STATE.glob("node*/kubelet")):
        shutil.rmtree(data, ignore_errors=True)  # but not node*/containerd: loaded images stay
    if is_purge:
        images.unmount_all()
        shutil.rmtree(STATE, ignore_errors=True)


def load(found: list[Path], nodes: list[str] | None) -> None:
    """Put the images into the stores of the nodes, all nodes at once."""

    def import_all(name: str) -> None:
        for image in found:
            node.import_image(image.resolve(), trees.inside(name))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(import_all, nodes or _node_names()))


def env() -> None:
    """Print lines for `eval "$(cluster.py env)"`."""
    print(f"export KUBECONFIG={KUBECONFIG} PATH={BIN}:$PATH")


def _node_names() -> list[str]:
    return [name for name in trees.names() if name.startswith("node")]


def _plug_in(name: str, index: int) -> None:
    """Plug the node into the bridge and route its pods; node1 also forwards the host to Services."""
    port, gateway = f"bl-{name}", layout.node_address(index)
    subprocess.run(
        ["ip", "link", "del", port], capture_output=True
    )  # the link of a killed node may outlive the node by minutes
    run(
        *("ip", "link", "add", port, "type", "veth"),
        *("peer", "name", "eth0", "netns", str(trees.first_pid(name))),
    )
    run("ip", "link", "set", port, "master", BRIDGE, "up")
    run("ip", "route", "replace", layout.pod_cidr(index), "via", gateway)
    if index == 1:
        run("ip", "route", "replace", layout.SERVICE_CIDR, "via", gateway)


def _ready_nodes() -> set[str]:
    nodes = json.loads(kubectl("get", "nodes", "-o", "json").stdout)["items"]
    return {
        item["metadata"]["name"]
        for item in nodes
        if any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", []))
    }


def _save_sysctls() -> None:
    saved = RUN / "sysctls.json"
    if not saved.exists():
        saved.write_text(json.dumps({name: Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}))


def _restore_sysctls() -> None:
    saved = RUN / "sysctls.json"
    if saved.exists():
        for name, value in json.loads(saved.read_text()).items():
            Path("/proc/sys", name).write_text(value)
        saved.unlink()


def _report(started: float, what: str) -> None:
    print(f"{time.monotonic() - started:6.1f} s  {what}", flush=True)


if __name__ == "__main__":
    main()
