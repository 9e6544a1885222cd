"""Where the cluster's files are, and its addresses.

The host is 10.245.0.1 on a bridge of its own; node i is 10.245.0.(10+i), has the pods 10.244.i.0/24 and the zone az<i>.
"""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATE = Path(os.environ.get("BEARLAKE_KUBE") or Path.home() / ".cache/bearlake/kube").resolve()
BIN = STATE / "bin"
IMAGES = STATE / "images"
PKI = STATE / "pki"
LOG = STATE / "log"
RUN = STATE / "run"

KUBECONFIG = PKI / "admin.kubeconfig"
BRIDGE = "bearlake0"
HOST = "10.245.0.1"
SERVER = f"https://{HOST}:6443"
POD_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
ETCD = "http://127.0.0.1:23790"
ETCD_PEER = "http://127.0.0.1:23800"
NODE_COUNT_MAX = 9

PAUSE = "bearlake.test/pause:1"
ADDONS = ("pause", "coredns", "metrics-server")


def node_name(index: int) -> str:
    """Return the name of node `index`."""
    return f"node{index}"


def node_address(index: int) -> str:
    """Return the IP address of node `index`."""
    return f"10.245.0.{10 + index}"


def pod_cidr(index: int) -> str:
    """Return the range of pod addresses of node `index`."""
    return f"10.244.{index}.0/24"
