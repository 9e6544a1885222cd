"""The admin token follows its file: rotated as Kubernetes rotates Secrets, without a refused request."""

from pathlib import Path

import pytest

from bearlake.errors import Invalid
from bearlake.serving.admin.token import AdminToken, read_token_file
from bearlake.serving.files import FollowedFiles

FIRST, SECOND, THIRD = (f"token number {number} of sixteen or more" for number in (1, 2, 3))
OVERLAP_MS = 60_000


class Secret:
    """A folder as the kubelet mounts a Secret: all files are behind one symbolic link, which is replaced as a whole."""

    def __init__(self, folder: Path, token: str) -> None:
        self._folder = folder
        self._version = 0
        self.now_s = 0.0
        self.put(token)
        self.file = folder / "token"
        self.file.symlink_to("..data/token")
        self.token = AdminToken(
            read_token_file(str(self.file)), str(self.file), overlap_ms=OVERLAP_MS, now_s=self.clock
        )

    def clock(self) -> float:
        return self.now_s

    def put(self, token: str | None) -> None:
        self._version += 1
        version = self._folder / f"..version-{self._version}"
        version.mkdir()
        if token is not None:
            (version / "token").write_text(token + "\n")
        (self._folder / "..new").symlink_to(version.name)
        (self._folder / "..new").rename(self._folder / "..data")

    def accepts(self, token: str) -> bool:
        return self.token.is_in(f"Bearer {token}")


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path, FIRST)


def test_a_new_token_counts_within_a_second_and_the_old_one_for_the_overlap(secret: Secret) -> None:
    secret.put(SECOND)
    assert [secret.accepts(token) for token in (FIRST, SECOND)] == [True, False]

    secret.now_s = 1.0
    assert [secret.accepts(token) for token in (FIRST, SECOND)] == [True, True]
    assert secret.token.accepted() == [SECOND, FIRST]

    secret.now_s = 60.9
    assert secret.accepts(FIRST)
    secret.now_s = 61.0
    assert [secret.accepts(token) for token in (FIRST, SECOND)] == [False, True]
    assert secret.token.accepted() == [SECOND]


def test_the_file_is_checked_at_most_once_a_second(secret: Secret, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr("bearlake.serving.files._stamp", lambda path: looks.append(path) or (1, 1, 1))

    for tenth in range(50):
        secret.now_s = tenth / 10
        secret.accepts(FIRST)

    assert len(looks) == 4


def test_the_two_newest_of_three_tokens_are_accepted(secret: Secret) -> None:
    for now_s, token in ((1.0, SECOND), (2.0, THIRD)):
        secret.now_s = now_s
        secret.put(token)
        secret.accepts(token)

    assert [secret.accepts(token) for token in (FIRST, SECOND, THIRD)] == [False, True, True]


@pytest.mark.parametrize("bad", [None, "", "short"])
def test_an_invalid_token_leaves_the_current_one_in_force(
    secret: Secret, bad: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    secret.put(bad)

    for now_s in (1.0, 2.0, 3.0):
        secret.now_s = now_s
        assert secret.accepts(FIRST)
    secret.put(SECOND)
    secret.now_s = 4.0
    assert secret.accepts(SECOND)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert SECOND not in caplog.text


def test_the_same_token_again_begins_no_overlap(secret: Secret) -> None:
    secret.put(FIRST)
    secret.now_s = 1.0

    assert secret.token.accepted() == [FIRST]


def test_messages_name_the_setting_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text(FIRST)
    now_s = 0.0
    token = AdminToken(FIRST, str(file), now_s=lambda: now_s, setting="admin.metrics_token_file")
    file.unlink()
    now_s = 1.0

    assert token.accepted() == [FIRST]
    assert [vars(record)["error"].partition(":")[0] for record in caplog.records] == ["admin.metrics_token_file"]


def test_a_token_without_a_file_stays(tmp_path: Path) -> None:
    token = AdminToken(FIRST)

    assert token.accepted() == [FIRST]
    assert not token.is_in(None)
    with pytest.raises(Invalid, match="absent"):
        read_token_file(str(tmp_path / "absent"))


def test_changed_and_replaced_files_are_reported_once(tmp_path: Path) -> None:
    now_s = 0.0
    first, second = tmp_path / "one", tmp_path / "other"
    first.write_text("1")
    followed = FollowedFiles([str(first), str(second)], pause_ms=0, now_s=lambda: now_s)
    assert not followed.have_changed()

    second.write_text("2")
    assert [followed.have_changed(), followed.have_changed()] == [True, False]
    (tmp_path / "new").write_text("1")
    (tmp_path / "new").rename(first)
    assert [followed.have_changed(), followed.have_changed()] == [True, False]
    second.unlink()
    assert [followed.have_changed(), followed.have_changed()] == [True, False]


def test_a_change_between_reading_and_following_the_file_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(FIRST)
    read = read_token_file(str(file))
    file.write_text(SECOND)

    assert AdminToken(read, str(file)).accepted() == [SECOND]


@pytest.mark.parametrize("octets", [b"Bearer \xff", b"Bearer " + FIRST.encode() + b"\xc3"])
def test_octets_that_are_not_utf_8_are_another_token(octets: bytes) -> None:
    """As aiohttp decodes headers."""
    assert not AdminToken(FIRST).is_in(octets.decode(errors="surrogateescape"))


def test_a_token_may_have_any_letters() -> None:
    token = "sechzehn-fröhliche-Zeichen"

    assert AdminToken(token).is_in(f"Bearer {token}")
