"""One certificate authority for everything, made once; the addresses never change, so the certificates stay good for a year."""

from commands import run, write_json
from layout import API_SERVICE, HOST, NODE_COUNT_MAX, PKI, SERVER, node_address, node_name

USERS = {
    "admin": "/O=system:masters/CN=admin",
    "scheduler": "/CN=system:kube-scheduler",
    "controller-manager": "/CN=system:kube-controller-manager",
    "proxy": "/CN=system:kube-proxy",
}
API_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def make() -> None:
    """Create missing certificates."""
    if not (PKI / "ca.crt").exists():
        _key("ca")
        _openssl("req", "-x509", "-key", "ca.key", "-days", "365", "-subj", "/CN=bearlake-test", "-out", "ca.crt")
        _key("sa")
        _openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    names = [f"DNS:{name}" for name in API_NAMES] + [f"IP:{address}" for address in ("127.0.0.1", API_SERVICE, HOST)]
    _certificate("apiserver", "/CN=apiserver", ",".join(names))
    _certificate("kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client")
    _certificate("front-proxy", "/CN=front-proxy")
    for user, subject in USERS.items():
        _certificate(user, subject)
        _kubeconfig(user)
    for index in range(1, NODE_COUNT_MAX + 1):
        name = node_name(index)
        _certificate(name, f"/O=system:nodes/CN=system:node:{name}", f"DNS:{name},IP:{node_address(index)}")
        _kubeconfig(name)


def _key(name: str) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")


def _certificate(name: str, subject: str, alternatives: str = "") -> None:
    if (PKI / f"{name}.crt").exists():
        return
    _key(name)
    _openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
    extensions = ["extendedKeyUsage=serverAuth,clientAuth"]
    if alternatives:
        extensions.append(f"subjectAltName={alternatives}")
    (PKI / f"{name}.ext").write_text("\n".join(extensions) + "\n")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "365", "-extfile", f"{name}.ext")
    _openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")


def _kubeconfig(user: str) -> None:
    files = {"client-certificate": str(PKI / f"{user}.crt"), "client-key": str(PKI / f"{user}.key")}
    cluster = {"server": SERVER, "certificate-authority": str(PKI / "ca.crt")}
    write_json(
        PKI / f"{user}.kubeconfig",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": files}],
        },
    )


def _openssl(*arguments: str) -> None:
    run("openssl", *arguments, cwd=PKI)
