"""Revisions: a request that arrives after a later request about the same subject is refused, even if revisions were forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.metadata.model import PartitionKey
from bearlake.streams.groups.revisions import Outdated, Revisions, later, member_subject
from fixtures.groups import ref


def outdated(revisions: Revisions, member: str, named: str) -> str:
    with pytest.raises(Outdated) as caught:
        revisions.take([member], named)
    return caught.value.revision


def test_a_given_up_request_is_refused_after_the_next_request():
    revisions = Revisions(10)
    first = outdated(revisions, "m", "")
    revisions.take(["m"], first)

    assert outdated(revisions, "m", first) == revisions.newest() != first


def test_a_given_up_request_is_refused_after_a_request_of_the_servers_own_clients():
    revisions = Revisions(10)
    named = revisions.newest()
    revisions.take(["m"], None)

    outdated(revisions, "m", named)


def test_requests_of_one_member_do_not_make_those_of_another_outdated():
    revisions = Revisions(10)
    named = revisions.newest()
    revisions.take(["other"], named)

    revisions.take(["m"], named)


def test_a_request_about_several_subjects_is_outdated_by_a_later_one_about_any_of_them():
    revisions = Revisions(10)
    named = revisions.newest()
    revisions.take([PartitionKey(2)], None)

    with pytest.raises(Outdated):
        revisions.take(["m", PartitionKey(1), PartitionKey(2)], named)
    revisions.take(["m", PartitionKey(1)], named)


def test_a_check_makes_no_other_request_outdated():
    revisions = Revisions(10)
    named = revisions.newest()
    revisions.check(["m"], named)
    revisions.take(["m"], named)

    with pytest.raises(Outdated):
        revisions.check(["m"], named)


def test_a_revision_of_another_term_is_refused():
    before, after = Revisions(10), Revisions(10)

    outdated(after, "m", before.newest())


@pytest.mark.parametrize("text", ["", "/", "term", "term/", "term/-1", "term/1", "term/x", "term/1e3", "x/0", "term/²"])
def test_an_unknown_revision_is_refused(text: str):
    revisions = Revisions(10, "term")

    assert outdated(revisions, "m", text) == "term/0"
    outdated(revisions, "m", text)


def test_a_group_whose_revision_no_sender_knows_remembers_nothing():
    revisions = Revisions(10)
    revisions.take(["m"], None)
    before = len(revisions)
    revisions.newest()
    revisions.take(["m"], None)

    assert (before, len(revisions)) == (0, 1)


def test_a_static_member_and_a_member_whose_id_has_the_same_text_are_different_subjects():
    assert (
        member_subject(ref("g", "static i")) != member_subject(ref("g", "x", "i")) == member_subject(ref("g", "y", "i"))
    )


def test_answers_in_another_order_keep_the_later_revision():
    assert later("t/9", "t/10") == later("t/10", "t/9") == "t/10"
    assert later("t/9", "u/1") == "u/1"
    assert later("", "t/1") == "t/1"


REQUESTS = st.lists(
    st.tuples(st.frozensets(st.sampled_from("abcd"), min_size=1), st.booleans()), max_size=40
)  # subjects, and whether another server sends the request


@given(REQUESTS, st.integers(1, 4))
def test_no_request_is_accepted_after_a_later_one_even_if_subjects_are_forgotten(
    requests: list[tuple[frozenset[str], bool]], count_max: int
):
    revisions = Revisions(count_max, "term")
    told: list[str] = []
    late: set[tuple[str, str]] = set()
    for subjects, is_forwarded in requests:
        told.append(revisions.newest())
        revisions.take(subjects, told[-1] if is_forwarded else None)
        late |= {(subject, named) for subject in subjects for named in told}
        for subject, named in late:
            with pytest.raises(Outdated):
                revisions.check([subject], named)
        assert len(revisions) <= count_max
