"""The images copy single files of the product before the rest: those must suffice for what runs with them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = re.compile(r"^COPY (servers/bearlake\S*(?: servers/bearlake\S*)*) /build/archive/(\S+)$", re.MULTILINE)


def test_the_archive_of_sparks_classes_is_made_with_the_files_that_the_image_copies(tmp_path: Path) -> None:
    copies = COPY.findall((ROOT / "servers/Dockerfile").read_text())
    assert copies
    for sources, target in copies:
        for source in map(ROOT.joinpath, sources.split()):
            if source.is_dir():
                shutil.copytree(source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (tmp_path / target).mkdir(parents=True, exist_ok=True)
                shutil.copy(source, tmp_path / target)
    command = "import sys; sys.version_info = (3, 11, 2, 'final', 0); import bearlake.compaction.spark.archive as a; print(a.__file__)"

    ran = subprocess.run(
        [sys.executable, "-P", "-c", command],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(str(tmp_path))
