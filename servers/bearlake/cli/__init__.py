"""The command line. Every command imports what it needs when it runs, so that `bearlake --help` is quick."""

from bearlake.cli.main import main

__all__ = ["main"]
