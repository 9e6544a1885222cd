"""Promotions: everybody may append to the streams from then on, and their imports cannot (decisions 227 and 324).

All names are looked up first: if a stream is missing, none is promoted. Then the streams are promoted one after the other. If that ends
early, because the process dies or a store does not answer, the streams before are promoted, and the same call promotes the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import Catalog, ConfigChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """A stream to which everybody may append."""

    name: str
    source: str
    """From where it was imported, as `import.source` said; empty: it was not being imported, so nothing changed."""


async def promote(
    catalog: Catalog, names: Sequence[str], show: Callable[[Promoted], None] = lambda _: None
) -> Sequence[Promoted]:
    """Let everybody append to these streams, to each once; calls `show` after each. Repeatable, also beside another call.

    If `show` cannot print (`OSError`, `UnicodeError`), it is not called again. The error is raised after the last promotion.

    Raises:
        NotFound: a stream is missing, and none was promoted; or it was deleted after the look-up.
        Unavailable, Overloaded: the stream after the last that was shown may be promoted, later ones are not.
    """
    found = [await catalog.resolve(name) for name in names]
    done: list[Promoted] = []
    failure: OSError | UnicodeError | None = None
    for view in {view.name: view for view in found}.values():
        source = stream_configs.value(view.stream.configs, stream_configs.IMPORT_SOURCE)
        if source:
            await catalog.change(view.stream, _without_mark)
        done.append(Promoted(name=view.name, source=source))
        if failure is None:
            try:
                show(done[-1])
            except (OSError, UnicodeError) as error:
                failure = error
    if failure is not None:
        raise failure
    return done


def _without_mark(_: Mapping[str, str]) -> ConfigChanges:
    return {}, [stream_configs.IMPORT_SOURCE]
