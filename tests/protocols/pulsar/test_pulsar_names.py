"""Names of topics and streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Invalid
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.names import TopicName
from bearlake.streams.catalog import check_name


@pytest.mark.parametrize(
    ("topic", "full", "stream"),
    [
        ("orders", "persistent://public/default/orders", "orders"),
        ("persistent://public/default/a.b_c-d", "persistent://public/default/a.b_c-d", "a.b_c-d"),
        ("acme/prod/orders", "persistent://acme/prod/orders", "acme..prod..orders"),
        ("persistent://acme/prod/my-topic.v2", "persistent://acme/prod/my-topic.v2", "acme..prod..my-topic.v2"),
        ("a b", "persistent://public/default/a b", "public..default..a...20b"),
        ("a..b", "persistent://public/default/a..b", "public..default..a...2e...2eb"),
        (".", "persistent://public/default/.", "public..default.....2e"),
        ("größe", "persistent://public/default/größe", "public..default..gr...c3...b6...c3...9fe"),
        ("a=b:c/n%1/t", "persistent://a=b:c/n%1/t", "a...3db...3ac..n...251..t"),
    ],
)
def test_topic_and_stream_names_map_to_each_other(topic: str, full: str, stream: str) -> None:
    name = names.parse(topic)

    assert str(name) == full
    assert name.stream == stream
    assert names.topic_of(stream) == name
    check_name(stream)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "a/b",
        "a/b/c/d",
        "persistent://a/b",
        "persistent://a/b/",
        "persistent:///b/c",
        "persistent://tenant/cluster/namespace/topic",
        "non-persistent://public/default/t",
        "kafka://public/default/t",
        "topic://public/default/t",
        "segment://public/default/t/0000-ffff-0",
        "persistent://ten ant/default/t",
        "\udcff",
    ],
)
def test_an_invalid_name_is_refused(topic: str) -> None:
    with pytest.raises(Invalid):
        names.parse(topic)


@pytest.mark.parametrize(
    ("namespace", "prefix"),
    [
        ("acme/prod", "acme..prod.."),
        ("public/other", "public..other.."),
        ("a=b/n", "a...3db..n.."),
        ("public/default", None),
    ],
)
def test_streams_of_a_namespace_have_a_prefix(namespace: str, prefix: str | None) -> None:
    assert names.prefix_of(namespace) == prefix
    if prefix is not None:
        for local in ("t", ".", "a b", "a..b", "ö"):
            assert TopicName(namespace, local).stream.startswith(prefix)


def test_a_prefix_covers_other_namespaces_only_if_they_continue_with_an_escape() -> None:
    prefix = names.prefix_of("acme/prod")
    assert prefix is not None
    others = ["acme/prod2", "acme/prod-x", "acme/prod.x", "acme/pro", "acme2/prod", "acm=e/prod"]
    assert not any(TopicName(other, "t").stream.startswith(prefix) for other in others)
    assert TopicName("acme/prod=x", "t").stream.startswith(prefix)


@pytest.mark.parametrize(
    "stream", ["a..b", "..", "public..default..plain", "a..b..c..d", "public..default..a...2Eb", "a..b.."]
)
def test_a_stream_of_another_protocol_may_have_no_name_in_pulsar(stream: str) -> None:
    assert names.topic_of(stream) is None


def test_a_topic_whose_stream_would_have_too_long_a_name_is_refused() -> None:
    assert names.parse("x" * 249).stream == "x" * 249
    with pytest.raises(Invalid, match="249"):
        assert names.parse("x" * 250).stream
    with pytest.raises(Invalid, match="249"):
        assert names.parse("/".join(("a", "b", "ü" * 41))).stream


_PART = st.text(st.sampled_from("ab0_-.=:%"), min_size=1, max_size=8)
_LOCAL = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(tenant=_PART, namespace=_PART, local=_LOCAL)
def test_every_topic_has_a_legal_stream_name_of_its_own(tenant: str, namespace: str, local: str) -> None:
    name = names.parse(f"persistent://{tenant}/{namespace}/{local}")

    check_name(name.stream)
    assert names.topic_of(name.stream) == name


@given(stream=st.text(st.sampled_from("ab.-2e"), min_size=1, max_size=20).filter(lambda name: name not in (".", "..")))
def test_every_stream_has_at_most_one_topic(stream: str) -> None:
    topic = names.topic_of(stream)

    assert topic is None or topic.stream == stream


def test_partitions_of_a_topic_are_topics() -> None:
    name = TopicName("public/default", "t")

    assert str(name.partition(3)) == "persistent://public/default/t-partition-3"
    assert name.partition(3).split_partition() == (name, 3)
    assert [
        TopicName("public/default", name).split_partition()
        for name in ("t", "t-partition-", "t-partition-03", "-partition-1")
    ] == [
        None,
        None,
        None,
        None,
    ]
