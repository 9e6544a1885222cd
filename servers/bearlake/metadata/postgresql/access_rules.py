"""Access rules in PostgreSQL."""

from collections.abc import Sequence

from typing_extensions import override

from bearlake.metadata.access_rules import (
    RULE_COUNT_MAX,
    AccessRule,
    AccessRules,
    RuleSet,
    check_rules,
    row_of,
    rule_set,
)
from bearlake.metadata.postgresql.calls import call
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.postgresql.watch import Watch

READ = """
select s.revision, r.* from bearlake.access_state s left join bearlake.access_rule r on true"""
"""The revision with all rules, in one snapshot; without any rule, one row of nulls."""


class PostgresqlAccessRules(AccessRules):
    """`metadata.access_rules.AccessRules`."""

    def __init__(self, database: Database, watch: Watch) -> None:
        self._database = database
        self._watch = watch

    @override
    async def revision(self) -> int:
        revision: int = await self._database.value("select revision from bearlake.access_state", is_read=True)
        return revision

    @override
    async def read(self) -> RuleSet:
        rows = await self._database.rows(READ, is_read=True)
        return rule_set(rows[0][0], [tuple(row)[1:] for row in rows if row[1] is not None])

    @override
    async def change(self, *, created: Sequence[AccessRule], deleted: Sequence[AccessRule], revision: int) -> int:
        check_rules(created, deleted)
        rows = [row_of(rule) for rule in (*created, *deleted)]
        resources, names, patterns, principals, hosts, operations, permissions = (
            [row[at] for row in rows] for at in range(7)
        )
        # Repeatable: the second time, the revision is a newer one.
        position: int = await self._database.value(
            *call(
                "change_access_rules",
                revision=revision,
                count_max=RULE_COUNT_MAX,
                is_new=[True] * len(created) + [False] * len(deleted),
                resources=resources,
                names=names,
                patterns=patterns,
                principals=principals,
                hosts=hosts,
                operations=operations,
                permissions=permissions,
            )
        )
        self._watch.saw(position)
        return revision + 1
