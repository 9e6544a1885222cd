"""The files of the layout: an upgraded store equals a new one, every function is documented, and a change of a file gets a number."""

import hashlib
import re
from importlib import resources

import asyncpg
import pytest

from bearlake.metadata.postgresql.layout import OLDEST, VERSION, available
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql_catalog import catalog
from fixtures.postgresql_metadata import LAYOUTS, make_layout_26

FUNCTIONS = {
    file.name: file.read_text("utf-8")
    for file in resources.files("bearlake.metadata.postgresql").joinpath("functions").iterdir()
    if file.name != "former.sql"
}
DEFINITION = re.compile(r"^create or replace function bearlake\.(\w+)", re.MULTILINE)


async def test_a_store_of_layout_26_becomes_equal_to_a_new_one(postgresql_url: str, admin: asyncpg.Connection) -> None:
    await make_layout_26(postgresql_url)
    for schema in ("bearlake", "another"):
        await (await open_postgresql(f"{postgresql_url}?schema={schema}")).close()

    assert await catalog(admin) == await catalog(admin, schema="another")
    versions = await admin.fetch("select version from bearlake.migration order by version")
    assert [row[0] for row in versions] == [*range(1, OLDEST + 1), VERSION]


async def test_programs_of_layout_26_find_all_functions_that_they_call(
    postgresql_url: str, admin: asyncpg.Connection
) -> None:
    await (await open_postgresql(postgresql_url)).close()
    text = re.sub("^--.*\n", "", (LAYOUTS / "26_calls.sql").read_text("utf-8"), flags=re.MULTILINE)

    for statement in filter(str.strip, text.split(";\n")):
        await admin.prepare(statement)


async def test_function_bodies_name_only_what_exists(postgresql_url: str, admin: asyncpg.Connection) -> None:
    await (await open_postgresql(postgresql_url)).close()
    await admin.execute("set check_function_bodies = on")

    for script in FUNCTIONS.values():
        await admin.execute(script)


async def test_every_function_of_a_store_is_in_a_file(postgresql_url: str, admin: asyncpg.Connection) -> None:
    await (await open_postgresql(postgresql_url)).close()
    rows = await admin.fetch("select proname from pg_proc where pronamespace = 'bearlake'::regnamespace")
    defined = [name for script in FUNCTIONS.values() for name in DEFINITION.findall(script)]

    assert sorted(row[0] for row in rows) == sorted(defined)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_file_begins_with_its_promise_its_parameters_and_its_errors(name: str) -> None:
    script = FUNCTIONS[name]
    header, _, rest = script.partition("\n\n")
    first = re.split(r"\blanguage\b", rest)[0]
    raised = set(re.findall(r"BL\d{3}", "".join(re.findall(r"errcode = '\w+'", script))))

    assert all(line.startswith("--") for line in header.splitlines())
    assert [
        parameter for parameter in re.findall(r"\bp_\w+", first) if not re.search(rf"\b{parameter}\b", header)
    ] == []
    assert raised - set(re.findall(r"BL\d{3}", "\n".join(re.findall("^ *--.*", script, re.MULTILINE)))) == set()


def test_a_changed_file_gives_the_layout_the_next_number() -> None:
    """If this fails: add one to `VERSION`, and a line to digests.txt. A line of a released layout never changes. Comments do not count."""
    layout = available()
    scripts = [*layout.tables, *layout.functions, *(migration.script for migration in layout.migrations)]
    code = [" ".join(re.sub(r"--.*", "", script).split()) for script in scripts]
    digest = hashlib.sha256("\0".join(code).encode()).hexdigest()
    lines = (LAYOUTS / "digests.txt").read_text("utf-8").splitlines()

    assert lines[-1] == f"{VERSION} {digest}"
    assert [int(line.split()[0]) for line in lines] == sorted({int(line.split()[0]) for line in lines})
