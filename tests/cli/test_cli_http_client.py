"""The client of HTTP APIs: answers that are too large, too deep, cut off or without end, and logins that are not shown."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from bearlake import http_answers
from bearlake.cli import completion, http_client, rest_client, schema_options
from bearlake.cli.admin_client import AdminClient
from bearlake.cli.http_client import Api, HttpClient
from bearlake.cli.rest_client import RestClient
from bearlake.cli.schema_options import Registry
from bearlake.errors import BearlakeError, Invalid, NotFound, Unavailable
from fixtures.http_answers import DRIPPED, answering, head

API = schema_options.API
MEBIBYTE = 1024 * 1024


def error_of(pieces: Sequence[bytes], *, is_endless: bool = False) -> BearlakeError:
    with answering(pieces, is_endless=is_endless) as url, pytest.raises(BearlakeError) as refused:
        HttpClient(API, url, "", request_s=35, answer_bytes_max=MEBIBYTE).call("GET", "/subjects")
    return refused.value


@pytest.mark.parametrize(
    "pieces",
    [
        [head(), b" " * 65536],
        [head(Content_Length=1 << 40), b" " * 65536],
        [head(Transfer_Encoding="chunked"), b"10000\r\n" + b" " * 65536 + b"\r\n"],
    ],
    ids=["until closed", "length", "chunks"],
)
def test_an_answer_has_a_largest_size(pieces: Sequence[bytes]) -> None:
    error = error_of(pieces, is_endless=True)

    assert isinstance(error, Unavailable)
    assert "its answer is larger than 1048576 bytes" in str(error)


LOOKS_TO_SEND = 4
"""Looks at the clock until a small request is sent to a host with one address: at the start, to connect, for the handshake, to send."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by 20 s at each look, once the request is sent."""
    clock = itertools.chain([0] * LOOKS_TO_SEND, itertools.count(20, 20))
    for module in (http_client, http_answers):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("part", DRIPPED)
def test_an_answer_that_comes_byte_by_byte_ends_in_time(part: str) -> None:
    error = error_of(DRIPPED[part], is_endless=True)

    assert isinstance(error, Unavailable)
    assert "the answer did not end in time" in str(error) or part == "content of an error"


LATE = [head(), b'{"streams": [{"name": "a"}]}']
"""An answer that is not there at once."""


@pytest.mark.usefixtures("hasty")
def test_a_shell_does_not_wait_for_names_although_their_bytes_come() -> None:
    with answering(LATE) as url:
        context: Any = SimpleNamespace(params={"admin": url})

        assert completion.stream_names(context, click.Argument(["name"]), "") == []


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "client_of",
    [
        lambda url: AdminClient(url, None).with_timeout(1),
        lambda url: rest_client.client_of({"rest": url}, request_s=1),
    ],
    ids=["of a view", "of a shell"],
)
def test_a_client_with_a_limit_keeps_it_although_bytes_come(client_of: Callable[[str], HttpClient]) -> None:
    with answering(LATE) as url, pytest.raises(Unavailable, match="did not end in time"):
        client_of(url).call("GET", "/v1/streams")


@pytest.mark.usefixtures("hasty")
def test_a_client_without_a_deadline_waits_as_long_as_bytes_come() -> None:
    with answering([head(), *[b" "] * 100, b"7"]) as url:
        assert HttpClient(API, url, "").call("GET", "/subjects") == 7


def test_a_line_that_is_no_status_is_cut_and_no_terminal_obeys_it() -> None:
    error = error_of([b"\x1b[2J" + b"X" * 60_000 + b"\r\n\r\n"])

    assert isinstance(error, Unavailable)
    assert "\x1b" not in str(error)
    assert len(str(error)) < 3_000


@pytest.mark.parametrize(
    "pieces",
    [
        [head(), b"[" * 100_000],
        [head(), b"\xff"],
        [head(Content_Length=10), b"{}"],
        [head(Transfer_Encoding="chunked"), b"a\r\n{}"],
    ],
    ids=["deep", "binary", "cut off", "cut off in a chunk"],
)
def test_what_is_no_answer_is_no_answer(pieces: Sequence[bytes]) -> None:
    error = error_of(pieces)

    assert isinstance(error, Unavailable)
    assert "no answer from http://127.0.0.1" in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    "pieces",
    [
        [head("404 Not Found", Content_Length=10), b"{}"],
        [head("404 Not Found", Transfer_Encoding="chunked"), b"a\r\n{}"],
        [head("404 Not Found"), b"[" * 100_000],
        [head("404 Not Found"), b"[]"],
        [head("404 Not Found"), b"7"],
        [head("404 Not Found")],
    ],
    ids=["cut off", "cut off in a chunk", "deep", "list", "number", "nothing"],
)
def test_an_error_without_a_reason_has_that_of_its_code(pieces: Sequence[bytes]) -> None:
    error = error_of(pieces)

    assert isinstance(error, NotFound)
    assert str(error).endswith(" answered 404 Not Found (is it the schema registry? Set its address with --registry)")


def test_a_reason_is_short_and_no_terminal_obeys_it() -> None:
    reason = json.dumps({"message": "\x1b[2J\nbearlake: all is well" + "x" * 100_000}).encode()
    error = error_of([head("422 Unprocessable"), reason])

    assert isinstance(error, Invalid)
    assert str(error).startswith("\\x1b[2J\\nbearlake: all is well")
    assert len(str(error)) < 3_000


@pytest.mark.parametrize(
    "url",
    [
        "http://bear:hush@127.0.0.1:1",
        "https://:hush@127.0.0.1/path",
        "http://bear:hush@[::1",
        "bear:hush@127.0.0.1:1",
        "ftp://bear:hush@127.0.0.1",
    ],
)
def test_a_url_with_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(Invalid, match="--registry: expected a URL such as") as refused:
        HttpClient(API, url, "")

    assert "hush" not in str(refused.value)


def opened(api: Api, user: str | None, files: Mapping[str, Path]) -> None:
    """Log in as the options of one of the two APIs say, to a server that is not there."""
    url: Any = "http://127.0.0.1:1"
    if api is rest_client.API:
        RestClient(url, user, files)
        return
    with Registry(url, user, files.get("password"), None).opened():
        pass


@pytest.mark.parametrize("api", [rest_client.API, schema_options.API], ids=lambda api: api.word)
def test_a_password_needs_a_user_and_a_user_no_colon(api: Api, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hush")
    opened(api, "bear", {"password": file})
    with pytest.raises(Invalid, match=f"^--{api.word}-password-file needs --{api.word}-user$"):
        opened(api, None, {"password": file})
    with pytest.raises(Invalid, match=f"^--{api.word}-user: expected a name without a colon"):
        opened(api, "bear:x", {"password": file})
