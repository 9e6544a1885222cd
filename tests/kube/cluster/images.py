"""Image archives without Docker and without a registry: the product's own Dockerfiles, built by buildah.

`FROM python:3.11-slim-bookworm` is Debian's own Python here (made once by debootstrap), whose path differs from that of the official
image. Dockerfiles may use pip and apt, but cannot copy from other images. The steps run in a chroot with the host's network. pip uses
the host's settings and certificates, so it reaches the same package index; the image contains neither.

A built image is kept as an OCI layout, a folder of blobs. Nodes get only the blobs that they lack: one small layer after a change of
code.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

from commands import run
from layout import IMAGES, RUN, STATE

STORE = STATE / "buildah"
BASE = "docker.io/library/python:3.11-slim-bookworm"
BASE_TAR = IMAGES / "python-base.tar"
PACKAGES = "ca-certificates,python3,python3-venv,python3-pip"
UNWANTED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
SEARCH_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MEDIA_TYPE = "application/vnd.oci.image"


def build(tag: str, dockerfile: Path, context: Path, target: str | None = None) -> Path:
    """Build a Dockerfile; returns the folder with its OCI layout. Unchanged steps come from buildah's cache."""
    _make_base()
    folder = IMAGES / tag.replace("/", "_").replace(":", "_")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as settings:
        settings.write(_pip_settings())
        settings.flush()
        os.chmod(settings.name, 0o644)
        _buildah(
            *("bud", "--layers", "--force-rm", "--isolation", "chroot", "--pull-never", "--tag", tag),
            *("--volume", f"{CERTIFICATES}:/etc/pip.crt:ro", "--volume", f"{settings.name}:/etc/pip.conf:ro"),
            *(["--target", target] if target else []),
            *("--file", str(dockerfile), str(context)),
        )
    folder.mkdir(exist_ok=True)
    built, written = _image_id(tag), folder / "image-id"
    if written.exists() and written.read_text() == built:
        return folder
    written.unlink(missing_ok=True)
    (folder / "index.json").unlink(missing_ok=True)
    _buildah("push", "--quiet", "--disable-compression", tag, f"oci:{folder}:{tag}")  # existing blobs stay
    wanted = set(blobs(folder))
    for blob in (folder / "blobs/sha256").iterdir():
        if blob.name not in wanted:
            blob.unlink()
    written.write_text(built)
    return folder


def blobs(folder: Path) -> list[str]:
    """Digests (SHA-256, hexadecimal) of all parts of the image in an OCI layout: manifest, configuration, layers."""
    (entry,) = json.loads((folder / "index.json").read_text())["manifests"]
    digest = entry["digest"].removeprefix("sha256:")
    manifest = json.loads((folder / "blobs/sha256" / digest).read_text())
    parts = [manifest["config"], *manifest["layers"]]
    return [digest, *(part["digest"].removeprefix("sha256:") for part in parts)]


def write_archive(folder: Path, without: set[str], out: IO[bytes]) -> None:
    """Write the image of an OCI layout as a tar stream, without the blobs that the reader has."""
    index = json.loads((folder / "index.json").read_text())
    for entry in index["manifests"]:
        entry["annotations"]["io.containerd.image.name"] = entry["annotations"]["org.opencontainers.image.ref.name"]
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        for digest in blobs(folder):
            if digest not in without:
                tar.add(folder / "blobs/sha256" / digest, f"blobs/sha256/{digest}")
        _add(tar, "index.json", json.dumps(index).encode())


def pack(archive: Path, reference: str, program: Path, *, user: str) -> None:
    """Write the image `reference`, which contains and runs one static program, to `archive`: an OCI layout in a tar."""
    with tempfile.TemporaryDirectory(dir=STATE) as folder, tarfile.open(archive, "w") as tar:
        layer = Path(folder, "layer.tar")
        with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as files:
            files.add(program, program.name, filter=_as_root)
        with open(layer, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        tar.add(layer, f"blobs/sha256/{digest}")
        blob = {"mediaType": f"{MEDIA_TYPE}.layer.v1.tar", "digest": f"sha256:{digest}", "size": layer.stat().st_size}
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": user, "Env": [SEARCH_PATH]},
            "rootfs": {"type": "layers", "diff_ids": [blob["digest"]]},
        }
        manifest = {"schemaVersion": 2, "mediaType": f"{MEDIA_TYPE}.manifest.v1+json", "layers": [blob]}
        manifest["config"] = _put(tar, config, "config.v1")
        names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
        entry = _put(tar, manifest, "manifest.v1") | {"annotations": names}
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


def unmount_all() -> None:
    """Unmount what buildah leaves mounted below STATE."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{STATE}/")]):
        run("umount", mount)


def _make_base() -> None:
    """Put an image named BASE into buildah's store, if it is not there."""
    if not _image_id(BASE):
        if not BASE_TAR.exists():
            _debootstrap()
        with tempfile.TemporaryDirectory(dir=STATE) as context:
            os.link(BASE_TAR, f"{context}/base.tar")
            dockerfile = f'FROM scratch\nADD base.tar /\nENV {SEARCH_PATH} LANG=C.UTF-8\nCMD ["python3"]\n'
            Path(context, "Dockerfile").write_text(dockerfile)
            _buildah("bud", "--isolation", "chroot", "--tag", BASE, context)


def _debootstrap() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STATE) as name:
        root = Path(name, "root")
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root))
        for directory in UNWANTED:  # only files: packages expect the directories (Java: that of its manual pages)
            for file in (root / directory).rglob("*"):
                if not file.is_dir() or file.is_symlink():
                    file.unlink()
        # As in the official image: a program named python, and a pip that may install system-wide.
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
        with tarfile.open(Path(name, "base.tar"), "w", format=tarfile.PAX_FORMAT) as tar:
            for entry in sorted(os.listdir(root)):
                tar.add(root / entry, entry)
        shutil.move(Path(name, "base.tar"), BASE_TAR)


def _pip_settings() -> str:
    """The host's pip settings that decide where packages come from."""
    wanted = ("index-url", "extra-index-url", "trusted-host", "timeout")
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    lines = ["[global]", "cert = /etc/pip.crt"]
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        if (name := key.rpartition(".")[2]) in wanted:
            lines.append(f"{name} = {value.strip(chr(39))}")
    return "\n".join(lines) + "\n"


def _buildah(*arguments: str) -> None:
    run(*_buildah_command(), *arguments)


def _image_id(name: str) -> str:
    """The id of an image in buildah's store; "" if it is not there."""
    words = ("inspect", "--type", "image", "--format", "{{.FromImageID}}", name)
    return subprocess.run([*_buildah_command(), *words], capture_output=True, text=True).stdout.strip()


def _buildah_command() -> list[str]:
    return ["buildah", "--root", str(STORE), "--runroot", str(RUN / "buildah"), "--storage-driver", "overlay"]


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _put(tar: tarfile.TarFile, value: dict[str, Any], kind: str) -> dict[str, Any]:
    """Add a JSON blob; returns its descriptor."""
    content = json.dumps(value).encode()
    digest = hashlib.sha256(content).hexdigest()
    _add(tar, f"blobs/sha256/{digest}", content)
    return {"mediaType": f"{MEDIA_TYPE}.{kind}+json", "digest": f"sha256:{digest}", "size": len(content)}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
