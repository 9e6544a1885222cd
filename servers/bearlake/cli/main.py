"""`bearlake`: the root command, and the one place where errors become exit codes.

0 done · 1 failed (something was found missing, refused or not delivered) · 2 wrong usage or settings · 3 no answer from the server ·
130 interrupted. Server processes add 4 (fenced), see `bearlake.app.exits`.
"""

import os
import sys

import click

from bearlake import __version__
from bearlake.cli.command_group import COMPLETION_VARIABLE, CommandGroup
from bearlake.cli.commands import SECTIONS, all_commands
from bearlake.cli.output import say
from bearlake.errors import BearlakeError, Invalid, Overloaded, Unavailable


@click.group(
    cls=CommandGroup,
    commands=all_commands(),
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="bearlake", message="%(prog)s %(version)s")
def root() -> None:
    """Bearlake: a log for unmodified Kafka, Pulsar, REST and gRPC clients, which is also an Iceberg table.

    `bearlake up` starts everything on this machine; the other commands work against it without further options.
    """


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; what went wrong is one line on standard error."""
    if COMPLETION_VARIABLE in os.environ:
        root.main(arguments, prog_name="bearlake")  # answers the shell, and exits
    is_plain = bool(os.environ.get("NO_COLOR"))  # https://no-color.org
    try:
        with root.make_context("bearlake", list(arguments), color=False if is_plain else None) as context:
            result = root.invoke(context)
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BearlakeError as error:
        say(f"bearlake: {error}", is_error=True)
        return exit_code(error)
    return result if isinstance(result, int) else 0


def exit_code(error: BearlakeError) -> int:
    """The exit code of an error kind."""
    if isinstance(error, Unavailable | Overloaded):
        return 3
    return 2 if isinstance(error, Invalid) else 1
