"""The entry point for the command line: read the settings, run the event loop, turn errors into one line and an exit code."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import click
import uvloop

from bearlake.app import embedded, ready
from bearlake.app.exits import Exit
from bearlake.app.options import ServeOptions, UpOptions
from bearlake.app.process import run_process
from bearlake.app.role import Plan, Role
from bearlake.app.stop import Stop, Stopped
from bearlake.errors import BearlakeError, Fenced, Invalid
from bearlake.owned_tasks import TaskDied
from bearlake.serving.addresses import url_of
from bearlake.serving.memory import tune_allocator, tune_collector
from bearlake.settings.document import Given, Settings, load_document
from bearlake.settings.load import Loaded
from bearlake.telemetry import logs, metrics

log = logging.getLogger(__name__)

Started = tuple[Loaded[Settings], Coroutine[Any, Any, Exit]]
"""Settings, and the work to run with them."""


def up(options: UpOptions, environ: Mapping[str, str]) -> Exit:
    """Run everything on embedded defaults until asked to stop."""

    def start(held: ExitStack) -> Started:
        held.enter_context(embedded.locked(options.data_dir))
        loaded = load_document(options.config, environ, options.options, _embedded_defaults(options))
        return loaded, _up(options, Plan(loaded=loaded, environ=environ))

    return _run(start)


def serve(options: ServeOptions, environ: Mapping[str, str]) -> Exit:
    """Run one server of a cluster until asked to stop."""

    def start(held: ExitStack) -> Started:
        loaded = load_document(options.config, environ, options.options, {})
        return loaded, _serve(options, Plan(loaded=loaded, environ=environ))

    return _run(start)


def _embedded_defaults(options: UpOptions) -> Given:
    by_up = "default of bearlake up"
    chosen: dict[str, tuple[object, str]] = {
        **{path: (url, "data folder") for path, url in embedded.urls(options.data_dir).items()},
        "server.drain_ms": (2_000, by_up),
        "logs.level": ("WARNING", by_up),
        "logs.format": ("text", by_up),
        "logs.audit_changes": (False, by_up),
    }
    if options.process_count == 1:  # other processes rarely commit here; polling every 5 ms would cost 2 % of a core
        chosen["metadata.sqlite.poll_interval_ms"] = (100, by_up)
    return chosen


def _run(start: Callable[[ExitStack], Started]) -> Exit:
    try:
        with ExitStack() as held:
            loaded, work = start(held)
            logs.set_up(loaded.settings.logs)
            tune_allocator(loaded.settings.memory)
            tune_collector(loaded.settings.memory)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                code = runner.run(work)
            log.info("stopped", extra={"exit_code": int(code)})
            return code
    except TaskDied:
        return Exit.FAILED  # logged where it died
    except Fenced as error:
        return _refused(error, Exit.FENCED)
    except Invalid as error:
        return _refused(error, Exit.USAGE)
    except BearlakeError as error:
        return _refused(error, Exit.UNAVAILABLE)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED  # before the loop handled signals


def _roles(name: str) -> list[Role]:
    """Return the roles of `bearlake serve NAME`, or all protocols (`up`). Imports are late: a pod only has the libraries of its role."""
    roles: list[Role] = []
    if name == "compactor":
        from bearlake.app.compactor import CompactorRole

        roles.append(CompactorRole())
    if name in ("kafka", "up"):
        from bearlake.app.kafka import KafkaRole

        roles.append(KafkaRole())
    if name in ("pulsar", "up"):
        from bearlake.app.pulsar import PulsarRole

        roles.append(PulsarRole())
    if name in ("rest", "up"):
        from bearlake.app.registry import RegistryRole
        from bearlake.app.rest import RestRole

        roles += [RegistryRole(), RestRole()]
    if name in ("catalog", "up"):
        from bearlake.app.catalog import CatalogRole

        roles.append(CatalogRole())
    if name in ("grpc", "up"):
        from bearlake.app.grpc import GrpcRole

        roles.append(GrpcRole())
    if name == "up":
        from bearlake.app.console import ConsoleRole

        roles.append(ConsoleRole())
    return roles


def _refused(error: BearlakeError, code: Exit) -> Exit:
    click.echo(f"bearlake: {error}", err=True)
    return code


async def _serve(options: ServeOptions, plan: Plan) -> Exit:
    stop = Stop()
    stop.on_signals()
    if options.stops_with_parent:
        stop.on_end_of(sys.stdin.fileno())
    _forget(options.ready_file)

    async def until_stopped(endpoints: Mapping[str, str]) -> None:
        _report_start(endpoints)
        if options.ready_file is not None:
            ready.write_ready_file(options.ready_file, ready.addresses(endpoints, plan.settings.listeners))
        await stop.wait()

    with suppress(Stopped):
        await run_process(plan, stop, _roles(options.role), until_stopped)
    return stop.exit


async def _up(options: UpOptions, plan: Plan) -> Exit:
    from bearlake.app.processes import ServerProcesses
    from bearlake.app.worker import WorkerProcess

    stop = Stop()
    stop.on_signals(lambda: click.echo("\nStopping; a second Ctrl-C ends it at once.", err=True))
    _forget(options.ready_file)

    async def show_and_wait(endpoints: Mapping[str, str]) -> None:
        start_s = _report_start(endpoints)
        async with AsyncExitStack() as running:
            others = await running.enter_async_context(ServerProcesses(stop))
            worker = None
            if options.has_compactor:
                worker = await running.enter_async_context(WorkerProcess(plan.settings, options))
            content: dict[str, object] = dict(ready.addresses(endpoints, plan.settings.listeners))
            if options.process_count > 1:
                more = await others.start(options.process_count - 1, plan.settings, endpoints, options)
                content["kafka_all"] = [content["kafka"], *more]
            if stop.is_requested:
                return
            if options.ready_file is not None:
                ready.write_ready_file(options.ready_file, content)
            click.echo(ready.banner(content, _places(plan.settings), start_s))
            has_files = worker is not None and await worker.can_start()
            await _tour(options, plan.settings, endpoints, stop, has_files=has_files)
            await stop.wait()

    with suppress(Stopped):
        await run_process(plan, stop, _roles("up"), show_and_wait)
    return stop.exit


async def _tour(
    options: UpOptions, settings: Settings, endpoints: Mapping[str, str], stop: Stop, *, has_files: bool
) -> None:
    """`has_files`: a compaction worker writes the files of tables."""
    from bearlake.app.processes import run_tour

    kafka, admin = endpoints["kafka"], url_of(endpoints["admin"])
    stores = settings if has_files else None
    obstacle = ready.tour_obstacle(settings.listeners.kafka, settings.authentication)
    code = 0
    if options.has_tour and obstacle is not None:
        click.echo(f"There is no tour: {obstacle}.\n")
        code = Exit.FAILED
    elif options.has_tour:
        code = await run_tour(kafka, admin, stop, stores, settings.admin.tls_ca_file)
    if options.exits_after_tour:
        stop.request("end of the tour", Exit.OK if code == 0 else Exit.FAILED)
    elif obstacle is not None:
        click.echo(ready.next_with_logins(options.stores))
    elif not stop.is_requested:
        stores_of_tables = options.stores if options.has_compactor else None
        addresses = ready.addresses(endpoints, settings.listeners)
        click.echo(ready.try_next(addresses, stores_of_tables, ready.hidden_program()))


def _places(settings: Settings) -> Mapping[str, str]:
    from bearlake.settings.show import without_password

    return {
        "metadata": without_password(settings.metadata.url),
        "objects": without_password(settings.object_store.url),
    }


def _report_start(endpoints: Mapping[str, str]) -> float:
    start_s = ready.since_process_start_s()
    metrics.SERVER_START_SECONDS.set(start_s)
    log.info("serving", extra={**endpoints, "start_s": round(start_s, 3)})
    return start_s


def _forget(path: Path | None) -> None:
    if path is not None:
        path.unlink(missing_ok=True)
