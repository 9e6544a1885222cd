"""URLs of stores, in their parts."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Invalid
from bearlake.metadata.postgresql.database import split_url
from bearlake.urls import split_store_url

PARTS = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="%.-_~,"), max_size=8)


@given(PARTS, PARTS, PARTS, PARTS)
def test_a_url_without_brackets_has_the_parts_that_python_finds(
    netloc: str, path: str, query: str, fragment: str
) -> None:
    url = f"postgresql://{netloc}/{path}?{query}#{fragment}"

    assert split_store_url(url) == urlsplit(url)


@pytest.mark.parametrize(
    "url", ["", "memory:///", "sqlite:///a/b.db", "SQLITE:///a", "relative/path", "s3://bucket/a?b=c", "a:b"]
)
def test_other_urls_have_the_parts_that_python_finds(url: str) -> None:
    assert split_store_url(url) == urlsplit(url)


def test_a_list_of_hosts_may_have_addresses_of_ipv6() -> None:
    url = "postgresql://u:p@a:1,[::1]:3,b/d?x=1"

    assert split_store_url(url).netloc == "u:p@a:1,[::1]:3,b"
    assert split_url(f"{url}&schema=s", "default") == (url, "s")


@pytest.mark.parametrize("hosts", ["[::1", "a,[::1", "::1]"])
def test_brackets_that_no_address_has_are_refused(hosts: str) -> None:
    with pytest.raises(Invalid):
        split_url(f"postgresql://u@{hosts}/d", "default")
