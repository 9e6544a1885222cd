"""`bearlake user`: create, list and delete the users who may log in. It opens the metadata store itself.

A password comes from a prompt, a file or the variable BEARLAKE_USER_PASSWORD, never from the command line, which other users of the machine
can read.
"""

import getpass
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import PATH, chosen, lake_options
from bearlake.cli.output import json_option, print_json, print_table, printable, say
from bearlake.errors import Invalid

VARIABLE = "BEARLAKE_USER_PASSWORD"
PASSWORD_FILE_BYTES_MAX = 4_096


@click.group(cls=CommandGroup)
def user() -> None:
    """Create, list and delete users (SCRAM, PLAIN)."""


@user.command()
@click.argument("name")
@click.option(
    "--password-file",
    type=PATH,
    help=f"File with the password, - for standard input  [default: {VARIABLE}, or a prompt].",
)
@click.option(
    "--iterations",
    type=click.IntRange(4_096, 16_384),
    default=4_096,
    show_default=True,
    help="Rounds of hashing. A number other than the default reveals that the user exists.",
)
@click.option("--replace", is_flag=True, help="Give an existing user a new password.")
@lake_options
@json_option
def create(name: str, password_file: Path | None, iterations: int, replace: bool, as_json: bool, **given: Any) -> int:
    """Create a user."""
    users, settings = _users(given)
    run_async(users.create(settings, name, _password(password_file), iterations, replaces=replace))
    return _report(name, "saved" if replace else "created", as_json)


@user.command()
@click.argument("name")
@lake_options
@json_option
def delete(name: str, as_json: bool, **given: Any) -> int:
    """Delete a user. Its open connections end with their sessions (authentication.session_ms_max)."""
    users, settings = _users(given)
    run_async(users.delete(settings, name))
    return _report(name, "deleted", as_json)


@user.command("list")
@lake_options
@json_option
def list_users(as_json: bool, **given: Any) -> int:
    """List users by name, with their mechanisms."""
    users, settings = _users(given)
    rows = [
        {
            "name": stored.name,
            "mechanisms": [credential.mechanism for credential in stored.credentials],
            "iterations": [credential.iterations for credential in stored.credentials],
        }
        for stored in run_async(users.all_users(settings))
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, {"name": "NAME", "mechanisms": "MECHANISMS", "iterations": "ITERATIONS"})
    return 0


def _report(name: str, done: str, as_json: bool) -> int:
    if as_json:
        print_json({"name": name, "result": done})
    else:
        say(f"{printable(name)}: {done}")
    return 0


def _users(
    given: dict[str, Any],
) -> tuple[Any, Any]:  # the module app.users, and Settings; imported when they are needed
    return server_module("bearlake.app.users"), chosen(given, extra="kafka")


def _password(file: Path | None) -> str:
    """Raises `Invalid` if the file cannot be read or is not text, or without a terminal for the prompt."""
    if file is not None:
        try:
            raw = sys.stdin.buffer.read(PASSWORD_FILE_BYTES_MAX) if str(file) == "-" else _read(file)
            return raw.decode().removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"cannot read the password from {file}: {error}") from None
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    try:
        with warnings.catch_warnings():
            # Without a terminal, click would read the password from standard input, and show it.
            warnings.simplefilter("error", getpass.GetPassWarning)
            typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    except getpass.GetPassWarning:
        raise Invalid(
            f"there is no terminal to ask for the password: pass --password-file, or set {VARIABLE}"
        ) from None
    return typed


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(PASSWORD_FILE_BYTES_MAX)
