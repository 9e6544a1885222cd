"""The chart's README lists every value of the schema, with its default and its meaning."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from fixtures.chart import CHART

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
README = CHART / "README.md"
START = "<!-- Made of values.schema.json: BEARLAKE_WRITE_GOLDEN=1 pytest tests/chart -->\n"
WHOLE = {"imagePullSecrets", "resources", "tolerations", "affinity", "podTemplate"}
"""Values without rows for their fields: parts of Kubernetes' own objects."""
APART = {"tiers", "dataLayers"}
"""Values with tables of their own."""


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def rows(path: str, schema: Mapping[str, Any], default: Any = None) -> Iterator[str]:
    """The rows of a value and of the values inside it: name, default, meaning."""
    schema = resolved(schema)
    default = schema.get("default") if default is None else default
    inner = {} if path.rpartition(".")[2] in WHOLE else schema.get("properties", {})
    items = {} if path.rpartition(".")[2] in WHOLE else resolved(schema.get("items", {})).get("properties", {})
    if path:
        text = "" if inner or default in (None, "", {}, []) else f"`{in_words(default)}`"
        yield f"| `{path}` | {text} | {schema['description']} |"
    for name, of_it in inner.items():
        if name not in APART:
            known = default.get(name) if isinstance(default, Mapping) else None
            yield from rows(f"{path}.{name}".removeprefix("."), of_it, known)
    for name, of_it in items.items():
        yield from rows(f"{path}[].{name}", of_it)


def in_words(default: Any) -> str:
    return default if isinstance(default, str) else json.dumps(default)


def table(schema: Mapping[str, Any], default: Any = None) -> str:
    return "\n".join(["| value | default | |", "|---|---|---|", *rows("", schema, default)])


def catalog() -> Mapping[str, Any]:
    """The values that only the catalog has; the others are those of a protocol's servers."""
    of = SCHEMA["definitions"]
    common, found = of["tier"]["properties"], of["catalog"]["properties"]
    assert {name: found[name] for name in common} == common
    return {"properties": {name: found[name] for name in found if name not in common}}


def shown() -> str:
    """The README's part about values."""
    of = SCHEMA["definitions"]
    parts = [
        ("Of the release", table(SCHEMA, VALUES)),
        ("Of a data layer: `dataLayers.<name>.…`", table(of["dataLayer"], VALUES["dataLayers"]["default"])),
        ("Of a protocol's servers: `dataLayers.<name>.tiers.<kafka, pulsar, rest or grpc>.…`", table(of["tier"])),
        (
            "Of the Iceberg REST catalog: `dataLayers.<name>.tiers.catalog.…`, besides those of a protocol's servers",
            table(catalog()),
        ),
        ("Of the console: `dataLayers.<name>.tiers.console.…`", table(of["console"])),
        ("Of compaction workers: `dataLayers.<name>.tiers.compactor.…`", table(of["workers"])),
    ]
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in parts) + "\n"


def test_the_readme_lists_every_value() -> None:
    before, _, found = README.read_text().partition(START)
    if os.environ.get("BEARLAKE_WRITE_GOLDEN"):
        README.write_text(f"{before}{START}\n{shown()}")
        return

    assert found == f"\n{shown()}", "look at it, then: BEARLAKE_WRITE_GOLDEN=1 pytest tests/chart"
