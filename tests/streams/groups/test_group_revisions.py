"""Revisions: a request that arrives after a later one of the same member is refused, whatever was forgotten meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.streams.groups.revisions import Outdated, Revisions


def outdated(revisions: Revisions, member: str, named: str) -> str:
    with pytest.raises(Outdated) as caught:
        revisions.advance(member, named)
    return caught.value.revision


def test_a_request_that_was_given_up_is_refused_after_the_next_one():
    revisions = Revisions(10)
    first = outdated(revisions, "m", "")
    revisions.advance("m", first)

    assert outdated(revisions, "m", first) == revisions.of("m") != first


def test_members_do_not_make_each_other_outdated():
    revisions = Revisions(10)
    mine = revisions.of("m")
    revisions.advance("other", revisions.of("other"))

    revisions.advance("m", mine)


def test_a_revision_of_another_term_is_refused():
    before, after = Revisions(10), Revisions(10)

    outdated(after, "m", before.of("m"))


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(1, 4))
def test_no_revision_is_taken_twice_though_members_are_forgotten(members: list[str], count_max: int):
    revisions = Revisions(count_max, "term")
    taken: dict[str, list[str]] = {}
    for member in members:
        named = revisions.of(member)
        revisions.advance(member, named)
        taken.setdefault(member, []).append(named)
        for other, before in taken.items():
            assert revisions.of(other) not in before
