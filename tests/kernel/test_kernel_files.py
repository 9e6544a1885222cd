from pathlib import Path
from types import ModuleType

import pytest

from bearlake import kernel as kernel_limits


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("parts", [[], [b""], [b"abc"], [b"a", bytearray(b"bc"), memoryview(b"xdex")[1:3], b""]])
def test_put_file_writes_all_parts_under_the_name(kernel: ModuleType, tmp_path: Path, parts: list, sync: bool) -> None:
    target = tmp_path / "object"

    kernel.put_file(str(tmp_path), str(target), parts, sync)

    assert target.read_bytes() == b"".join(parts)
    assert [path.name for path in tmp_path.iterdir()] == ["object"]


def test_put_file_writes_more_than_one_write_can_take(kernel: ModuleType, tmp_path: Path) -> None:
    parts = [bytes([number]) * 3_000_000 for number in range(9)]

    kernel.put_file(str(tmp_path), str(tmp_path / "object"), parts, False)

    assert (tmp_path / "object").read_bytes() == b"".join(parts)


def test_put_file_never_replaces(kernel: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "object"
    target.write_bytes(b"first")

    with pytest.raises(FileExistsError):
        kernel.put_file(str(tmp_path), str(target), [b"second"], True)

    assert target.read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 1


def test_put_file_into_no_folder_is_refused(kernel: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        kernel.put_file(str(tmp_path / "none"), str(tmp_path / "none/object"), [b"x"], True)


def test_put_file_takes_as_many_buffers_as_one_system_call(kernel: ModuleType, tmp_path: Path) -> None:
    parts = [bytes([at % 256]) * (at % 3) for at in range(kernel_limits.FILE_PARTS_MAX)]
    kernel.put_file(str(tmp_path), str(tmp_path / "most"), parts, True)
    with pytest.raises(ValueError, match="at most 1024"):
        kernel.put_file(str(tmp_path), str(tmp_path / "more"), [*parts, b"x"], True)

    assert (tmp_path / "most").read_bytes() == b"".join(parts)
    assert [found.name for found in tmp_path.iterdir()] == ["most"]


def test_put_file_refuses_values_that_are_not_buffers(kernel: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        kernel.put_file(str(tmp_path), str(tmp_path / "object"), [b"x", 7], True)

    assert list(tmp_path.iterdir()) == []
