"""Query parameters as typed models: values, defaults, refusals that name the parameter, and the OpenAPI document."""

from typing import Annotated, Literal

import pytest
from aiohttp.test_utils import make_mocked_request

from bearlake.serving.admin.operations import OPERATIONS
from bearlake.serving.http.models import Meta, Mismatch, OpenModel, field
from bearlake.serving.http.queries import Query


class Page(OpenModel):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    prefix: str = ""
    usage: Literal["true", "false"] = "false"
    name: list[str] = field(default_factory=list)


def read(text: str, **options: bool) -> Page:
    return Query(Page, **options).read(make_mocked_request("GET", f"/?{text}"))


def test_parameters_have_their_types_and_defaults() -> None:
    assert read("") == Page()
    assert read("limit=5&prefix=7&usage=true&name=a&name=b") == Page(limit=5, prefix="7", usage="true", name=["a", "b"])


def test_unknown_parameters_are_ignored() -> None:
    assert read("colour=blue") == Page()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limit=0", 'limit: expected a whole number from 1 to 1000, found "0"'),
        ("limit=ten", 'limit: expected a whole number from 1 to 1000, found "ten"'),
        ("limit=", 'limit: expected a whole number from 1 to 1000, found ""'),
        ("usage=yes", 'usage: expected one of false, true, found "yes"'),
    ],
)
def test_a_refusal_names_the_parameter_and_the_expected_value(text: str, message: str) -> None:
    with pytest.raises(Mismatch) as caught:
        read(text)

    assert str(caught.value) == message


def test_an_empty_value_can_mean_the_default() -> None:
    assert read("limit=", is_empty_absent=True).limit == 100


def test_the_document_describes_the_parameters_of_the_model() -> None:
    found = {parameter["name"]: parameter["schema"] for parameter in Query(Page).parameters()}

    assert found["limit"] == {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100}
    assert found["usage"] == {"enum": ["false", "true"], "default": "false"}
    assert found["name"]["items"] == {"type": "string"}
    assert [parameter["name"] for parameter in OPERATIONS["GET", "/v1/compaction/backlog"].parameters] == [
        "limit",
        "streams",
    ]
