"""`bearlake completion`: the script that lets a shell complete commands, options, and names of streams and groups.

The shell runs `bearlake` for each completion. Names come from the admin API, or from the REST API for commands that use it. The API must
answer quickly: a shell that waits is worse than one that does not complete.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from bearlake.cli import group_positions
from bearlake.cli.admin_client import URL_DEFAULT, AdminClient
from bearlake.cli.command_group import COMPLETION_VARIABLE
from bearlake.cli.http_client import Tls
from bearlake.cli.rest_client import RestClient, client_of
from bearlake.errors import BearlakeError

TIMEOUT_S = 1.0
NAME_COUNT_MAX = 200
_PLAIN = re.compile(r"[\w.~:/@%+=,-]+")
"""Names that a shell takes as one word. Others are not offered: a shell would have to quote them, and may obey what is in them."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script of a shell.

    \b
    bash  eval "$(bearlake completion bash)"            in ~/.bashrc
    zsh   eval "$(bearlake completion zsh)"             in ~/.zshrc, after compinit
    fish  bearlake completion fish | source             in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows these shells"
    click.echo(found(context.find_root().command, {}, "bearlake", COMPLETION_VARIABLE).source())
    return 0


def stream_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a stream."""
    return _names(context, "/v1/streams", "streams", "name", incomplete, prefix=incomplete, limit=NAME_COUNT_MAX)


def group_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a consumer group."""
    return _names(context, "/v1/groups", "groups", "group", incomplete, limit=NAME_COUNT_MAX)


def rest_group_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a consumer group or share group, by the REST API."""
    return _rest_names(context, lambda rest: [group.name for group in group_positions.all_groups(rest)], incomplete)


def rest_stream_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a stream, by the REST API."""
    return _rest_names(context, lambda rest: [topic["topic_name"] for topic in rest.all("/topics")], incomplete)


def _rest_names(context: click.Context, read: Callable[[RestClient], list[str]], incomplete: str) -> list[str]:
    """Return the plain names that begin as the word does; none if the REST API does not answer in time."""
    try:
        names = read(client_of(context.params, request_s=TIMEOUT_S))
    except (BearlakeError, KeyError, TypeError):
        return []
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)][:NAME_COUNT_MAX]


def _names(context: click.Context, path: str, key: str, field: str, incomplete: str, **query: object) -> list[str]:
    """Return the plain names that begin as the word does; none if the admin API does not answer in time."""
    try:
        found = _client(context.params).call("GET", path, **query)[key]
        names = [str(row[field]) for row in found]
    except (BearlakeError, KeyError, TypeError):
        return []
    given = context.params.get(parameter_of_names(context)) or ()
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name) and name not in given]


def parameter_of_names(context: click.Context) -> str:
    """Return the parameter that has the names which the line has already."""
    return next((name for name in ("names", "stream") if isinstance(context.params.get(name), tuple)), "")


def _client(params: Mapping[str, Any]) -> AdminClient:
    """Return a client of the admin API that the line names so far, or the environment. Raises `Invalid`."""
    url = params.get("admin") or os.environ.get("BEARLAKE_ADMIN") or URL_DEFAULT
    tls = Tls(
        ca_file=_file(params, "admin_ca_file"),
        certificate_file=_file(params, "admin_certificate_file"),
        key_file=_file(params, "admin_key_file"),
    )
    return AdminClient(url, _file(params, "admin_token_file"), tls, request_s=TIMEOUT_S)


def _file(params: Mapping[str, Any], name: str) -> Path | None:
    given = params.get(name) or (None if name == "admin_token_file" else os.environ.get(f"BEARLAKE_{name.upper()}"))
    return None if given is None else Path(given)
