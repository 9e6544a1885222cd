"""The schema notation: its meaning, and detection of mistakes."""

import subprocess
import sys
from pathlib import Path

import pytest

from bearlake.protocols.kafka.codec import schema
from bearlake.protocols.kafka.codec.keys import ApiKey
from fixtures.waiting import WAIT_S

TEXT = """
# About.
api ListOffsets  key 2  versions 1-11  flexible 6+

request
  struct Shared
    id  uuid
  acks     int16           = -1     # a comment
  name     string?4+  2-8  = null
  always   bool       3+   = true
  cluster  string?    9+ tag 1  = null
  topics   [Topic]?
    shared    Shared?  = null
    numbers   [int32]  7
response
"""


def fields(text=TEXT):
    return {field.name: field for field in schema.parse(text).request.root.fields}


def test_the_notation_expresses_versions_nullability_tags_and_defaults():
    found = fields()

    assert (found["acks"].type, found["acks"].versions, found["acks"].default) == ("int16", range(1, 12), -1)
    assert (found["name"].versions, found["name"].null_versions) == (range(2, 9), range(4, 9))
    assert (found["name"].default, found["always"].default) == (None, True)
    assert (found["cluster"].versions, found["cluster"].tag) == (range(9, 12), 1)
    assert (found["topics"].type, found["topics"].is_array, found["topics"].is_struct) == ("Topic", True, True)
    assert found["topics"].default == ()


def test_structs_take_the_versions_of_the_field_around_them():
    api = schema.parse(TEXT)
    topic = api.request.structs["Topic"]

    assert [(field.name, field.versions) for field in topic.fields] == [
        ("shared", range(1, 12)),
        ("numbers", range(7, 8)),
    ]
    assert [field.name for field in api.request.structs["Shared"].fields] == ["id"]


def test_versions_from_the_flexible_one_on_are_flexible_even_without_a_schema():
    api = schema.parse(TEXT)

    assert [api.is_flexible(version) for version in (1, 5, 6, 11, 12)] == [False, False, True, True, True]
    assert not schema.parse(TEXT.replace("6+", "none")).is_flexible(99)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", "schema"),
        (TEXT.replace("key 2", "2"), "schema"),
        (TEXT.replace("response", "answer"), "response"),
        (TEXT.replace("int16  ", "int16 ?"), "line 8"),
        (TEXT.replace("[int32]", "[int32"), "line 14"),
        (TEXT.replace("always  ", "name    "), "line 10: .*ListOffsetsRequest.* name"),
        (TEXT.replace("    id  uuid\n", ""), "Shared"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        schema.parse(wrong)


def test_every_schema_file_belongs_to_a_key():
    folder = Path(schema.__file__).parent.parent / "messages"

    assert {path.stem for path in folder.glob("*.txt")} == {key.name.lower() for key in ApiKey}
    for key in ApiKey:
        api = schema.load(key)
        assert (api.key, api.name) == (key, key.name.title().replace("_", ""))


def test_first_use_of_one_api_reads_no_other():
    program = """
from bearlake.protocols.kafka import codec, messages
from bearlake.protocols.kafka.codec import classes, codec as codecs, schema
codec.response(18, 4).frame(1, messages.ApiVersionsResponse())
print(schema.load.cache_info().currsize, classes.message_class.cache_info().currsize, codecs._response.cache_info().currsize)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S)

    assert found.stdout.split() == ["1", "1", "1"]
