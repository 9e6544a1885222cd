"""Runs the display: one reading per interval, printed line by line or drawn on the terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import click

from bearlake.cli.admin_client import AdminClient
from bearlake.cli.output import json_text
from bearlake.cli.top.frame import History, frame
from bearlake.cli.top.rates import Prices, figures
from bearlake.cli.top.readings import Deployment
from bearlake.cli.top.screen import Screen, size
from bearlake.errors import BearlakeError

PLAIN_HEIGHT = 10_000
"""Lines of a frame that no terminal bounds."""

PLAIN_WIDTH = 132
REQUEST_TIMEOUT_MIN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the display runs."""

    interval_s: float
    interval_count: int | None
    """None: until the user ends it."""
    prices: Prices


def run(admin: AdminClient, course: Course, *, as_json: bool, is_plain: bool) -> None:
    """Run to the end. `is_plain`: print frames one after the other, also on a terminal. Raises as `Deployment.read`."""
    with closing(Deployment(admin.with_timeout(max(REQUEST_TIMEOUT_MIN_S, course.interval_s)))) as deployment:
        if as_json or is_plain or not sys.stdout.isatty():
            _print(deployment, course, as_json)
        else:
            with Screen(has_colours=not os.environ.get("NO_COLOR")) as screen:
                _show(screen, deployment, course)


def _print(deployment: Deployment, course: Course, as_json: bool) -> None:
    """Print one frame, or one line of JSON, for each interval."""
    history = History()
    width = size()[0] if sys.stdout.isatty() else PLAIN_WIDTH
    for found in _figures(deployment, course, _sleep):
        if as_json:
            click.echo(json_text(found))
        else:
            history.add(found)
            click.echo("\n".join(frame(found, history, width, PLAIN_HEIGHT)))
        sys.stdout.flush()


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def _show(screen: Screen, deployment: Deployment, course: Course) -> None:
    """Redraw until the user ends it."""
    history = History()
    last: dict[str, Any] = {}

    def redraw() -> None:
        if last:
            screen.draw(frame(last, history, *size()))
        else:
            screen.draw([f"bearlake top: the first figures come in {course.interval_s:.3g} s (q ends it)"])

    def wait(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (event := screen.wait(max(0.0, deadline - time.monotonic()))) == "resize":
            redraw()
        return event != "quit"

    redraw()
    for found in _figures(deployment, course, wait):
        last = found
        history.add(found)
        redraw()


def _figures(deployment: Deployment, course: Course, wait: Callable[[float], bool]) -> Iterator[dict[str, Any]]:
    """Yield the figures of each interval. `wait` returns False to end it.

    The first two readings must succeed. Later, an admin API that does not answer is a problem in the figures, with the last values.
    """
    before = deployment.read()
    found: dict[str, Any] | None = None
    count = 0
    while wait(course.interval_s):
        try:
            after = deployment.read()
        except BearlakeError as error:
            if found is None:
                raise
            found = {**found, "problems": [str(error)]}
        else:
            found, before = figures(before, after, course.prices), after
        yield found
        count += 1
        if count == course.interval_count:
            return
