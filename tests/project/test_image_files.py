"""The images copy single files of the product before the rest: those must suffice for what runs with them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = re.compile(r"^COPY ((?:servers|operator)/bearlake\S*(?: servers/bearlake\S*)*) (/\S+)$", re.MULTILINE)


def copy_files(dockerfile: str, folder: str, target: Path) -> None:
    """Copy to `target` what the image copies from the product into `folder`."""
    copies = [(sources, to) for sources, to in COPY.findall((ROOT / dockerfile).read_text()) if to.startswith(folder)]
    assert copies
    for sources, to in copies:
        path = target / to.removeprefix(folder)
        for source in map(ROOT.joinpath, sources.split()):
            if source.is_dir():
                shutil.copytree(source, path, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                path.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, path)


def run(command: str, files: Path) -> str:
    """Run a command in Python with only these files of the product; returns its output."""
    ran = subprocess.run(
        [sys.executable, "-P", "-c", command],
        env={"PYTHONPATH": str(files)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_the_archive_of_sparks_classes_is_made_with_the_files_that_the_image_copies(tmp_path: Path) -> None:
    copy_files("servers/Dockerfile", "/build/archive/", tmp_path)
    command = "import sys; sys.version_info = (3, 11, 2, 'final', 0); import bearlake.compaction.spark.archive as a; print(a.__file__)"

    assert run(command, tmp_path).startswith(str(tmp_path))


def test_the_operator_starts_with_the_files_that_its_image_copies_and_asyncio_is_repaired(tmp_path: Path) -> None:
    copy_files("operator/Dockerfile", "/own/lib/python3.11/site-packages/", tmp_path)
    command = """
import sys
own, sys.version_info = sys.version_info, (3, 11, 2, "final", 0)
import bearlake
sys.version_info = own # other packages shall see it
import asyncio, bearlake_operator.__main__, bearlake_operator.metrics_api.__main__
print(bearlake.__file__, asyncio.Timeout.__aenter__.__module__, asyncio.TaskGroup.__aexit__.__module__)
"""

    package = str(tmp_path / "bearlake" / "__init__.py")
    assert run(command, tmp_path).split() == [package, *["bearlake.asyncio_repairs"] * 2]
