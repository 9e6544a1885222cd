"""Stream configs: validation, and the table's configs."""

import pytest

from bearlake.errors import Invalid
from bearlake.streams import config_changes, configs
from bearlake.streams.key_compaction_rules import key_compaction_rules
from bearlake.streams.schema_rules import PartRules, Validation
from bearlake.streams.value_rules import ValueMode, ValueRules, key_rules, schema_rules, value_rules


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("table.enable", "yes"),
        ("table.freshness_ms", "99"),
        ("table.retention_ms", "-2"),
        ("table.on_delete", "purge"),
        ("table.on_compaction", "newest"),
        ("table.namespace", ""),
        ("table.namespace", "a.b"),
        ("table.namespace", "../escape"),
        ("table.name", "or/ders"),
        ("table.name", "x" * 250),
        ("table.compression", "zstd"),
        ("table.value.mode", "typed"),
        ("table.value.schema_id", "-2"),
        ("table.key.mode", "typed"),
    ],
)
def test_meaningless_table_configs_are_refused(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=name):
        configs.check({name: value})


@pytest.mark.parametrize(
    ("before", "set_configs", "unset_configs"),
    [
        ({}, {"table.name": "sales"}, []),
        ({"table.name": "sales"}, {"table.name": "orders"}, []),
        ({"table.namespace": "shop"}, {}, ["table.namespace"]),
        ({}, {"table.on_compaction": "latest"}, []),
    ],
)
def test_a_stream_keeps_its_tables_name(
    before: dict[str, str], set_configs: dict[str, str], unset_configs: list[str]
) -> None:
    with pytest.raises(Invalid, match=r"table\.\w+"):
        config_changes.check_change(before, set_configs, unset_configs)


def test_a_change_that_keeps_the_tables_name_is_accepted() -> None:
    before = {"table.name": "sales", "retention.ms": "5"}

    config_changes.check_change(before, {"table.name": "sales", "table.namespace": "streams"}, ["retention.ms"])


def test_a_config_that_does_not_exist_can_be_unset_only_where_a_later_version_has_set_it() -> None:
    with pytest.raises(Invalid, match=r"^Unknown topic config name: retention\.mss$"):
        config_changes.check_change({"retention.ms": "5"}, {}, ["retention.ms", "retention.mss"])

    config_changes.check_change({"of.later.version": "5"}, {}, ["of.later.version", "retention.ms"])


def test_lags_that_contradict_each_other_are_refused_in_kafkas_words() -> None:
    before = {"min.compaction.lag.ms": "100"}
    text = r"conflict topic config setting min.compaction.lag.ms \(100\) > max.compaction.lag.ms \(99\)"

    with pytest.raises(Invalid, match=text):
        config_changes.check_change(before, {"max.compaction.lag.ms": "99"}, [])
    config_changes.check_change(before, {"max.compaction.lag.ms": "100"}, [])


def test_key_compaction_is_a_part_of_the_cleanup_policy() -> None:
    assert key_compaction_rules({"cleanup.policy": "delete"}) is None
    for policy in ("compact", "compact,delete", "delete, compact"):
        rules = key_compaction_rules({"cleanup.policy": policy})
        assert rules is not None
        assert (rules.dirty_ratio_min, rules.lag_ms_min, rules.tombstone_keep_ms) == (0.5, 0, 86_400_000)
        assert rules.keeps_history


def test_every_default_is_a_legal_value() -> None:
    configs.check(
        {config.name: config.default for config in configs.ALL if config.default or config.name == "table.name"}
    )


def test_a_table_has_its_streams_name_unless_another_is_configured() -> None:
    rules = configs.table_rules("shop.orders", {})

    assert (rules.namespace, rules.name, rules.is_enabled, rules.freshness_ms) == (
        "streams",
        "shop_orders",
        True,
        10_000,
    )
    assert (rules.retention_ms, rules.is_dropped_on_delete) == (None, False)


def test_table_configs_of_a_stream_are_read() -> None:
    given = {
        "table.enable": "FALSE",
        "table.freshness_ms": "500",
        "table.retention_ms": "0",
        "table.namespace": "shop",
        "table.name": "sales",
        "table.on_delete": "drop",
    }
    configs.check(given)

    assert configs.table_rules("orders", given) == configs.TableRules(
        is_enabled=False, freshness_ms=500, retention_ms=0, namespace="shop", name="sales", is_dropped_on_delete=True
    )


@pytest.mark.parametrize(
    "subjects", ["__GLOBAL", "a,\x01", "orders-value,:.other:orders-value", "x" * 1025, ",".join("a" * 101)]
)
def test_subjects_that_no_value_can_have_are_refused(subjects: str) -> None:
    with pytest.raises(Invalid, match=r"table\.value\.subjects"):
        config_changes.check_consistent({"table.value.subjects": subjects})


def test_value_configs_of_a_stream_are_read() -> None:
    given = {
        "table.value.mode": "elide",
        "table.value.subjects": " orders-value, refunds,",
        "table.value.schema_id": "7",
    }
    config_changes.check_consistent(given)

    assert value_rules("orders", {}) == ValueRules(mode=ValueMode.RAW, subjects=("orders-value",), schema_id=None)
    assert value_rules("orders", given) == ValueRules(
        mode=ValueMode.ELIDE, subjects=("orders-value", "refunds"), schema_id=7
    )
    assert value_rules("orders", {**given, "table.enable": "false"}).mode is ValueMode.RAW


def test_keys_have_the_schemas_of_their_subjects_for_columns_and_for_the_door() -> None:
    given = {"table.key.mode": "keep", "table.key.schema_id": "8", "schema.key.validation": "value"}
    config_changes.check_consistent(given)

    rules = key_rules("orders", given)

    assert (rules.mode, rules.subjects, rules.schema_id) == (ValueMode.KEEP, ("orders-key",), 8)
    assert key_rules("orders", {}).mode is ValueMode.RAW
    found = schema_rules("orders", given)
    assert found is not None
    assert found.key == PartRules(validation=Validation.VALUE, subjects=("orders-key",), schema_id=8)
    with pytest.raises(Invalid, match=r"table\.key\.schema_id"):
        config_changes.check_consistent({**given, "schema.key.validation": "id"})
