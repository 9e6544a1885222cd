"""The schema registry's HTTP API: each call as Confluent documents it.

Source: Confluent, "Schema Registry API Reference" and "Schema Registry API Usage Examples".
"""

import gzip
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest
import zstandard

from bearlake.protocols.rest.registry.settings import RegistrySettings
from fixtures.schema_registry import RegistryNode, started

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
}
BAD = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
PROTO = 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n}\n'


def text(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"))


async def test_a_registered_schema_is_given_back_by_id_and_version(registry: RegistryNode) -> None:
    made = await registry.post("/subjects/Kafka-value/versions", {"schema": '{"type": "string"}'})
    by_id = await registry.get("/schemas/ids/1")
    version = await registry.get("/subjects/Kafka-value/versions/1")

    assert (made.status, made.body["id"]) == (200, 1)
    assert by_id.body["schema"] == '"string"'
    assert "schemaType" not in by_id.body
    assert {key: version.body[key] for key in ("subject", "version", "id", "schema")} == {
        "subject": "Kafka-value",
        "version": 1,
        "id": 1,
        "schema": '"string"',
    }
    assert (await registry.get("/schemas/ids/1/schema")).body == "string"
    assert (await registry.get("/subjects/Kafka-value/versions/latest/schema")).body == "string"
    assert made.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"


async def test_the_same_schema_gets_the_same_id_and_no_new_version(registry: RegistryNode) -> None:
    first = await registry.register("a-value", V1)
    again = await registry.register("a-value", json.dumps(V1, indent=4))
    elsewhere = await registry.register("b-value", V1)
    other = await registry.register("b-value", V2)

    assert (first, again, elsewhere, other) == (1, 1, 1, 2)
    assert (await registry.get("/subjects/a-value/versions")).body == [1]
    assert (await registry.get("/subjects/b-value/versions")).body == [1, 2]
    assert (await registry.get("/schemas/ids/1/subjects")).body == ["a-value", "b-value"]
    assert (await registry.get("/schemas/ids/1/versions")).body == [
        {"subject": "a-value", "version": 1},
        {"subject": "b-value", "version": 1},
    ]


async def test_a_schema_is_looked_up_under_its_subject(registry: RegistryNode) -> None:
    await registry.register("a-value", V1)
    found = await registry.post("/subjects/a-value", {"schema": json.dumps(V1)})
    no_schema = await registry.post("/subjects/a-value", {"schema": json.dumps(V2)})
    no_subject = await registry.post("/subjects/none", {"schema": json.dumps(V1)})

    assert found.status == 200
    assert (found.body["subject"], found.body["version"], found.body["id"]) == ("a-value", 1, 1)
    assert found.body["schema"] == text(V1)
    assert (no_schema.status, no_schema.body["error_code"]) == (404, 40403)
    assert (no_subject.status, no_subject.body["error_code"]) == (404, 40401)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/schemas/ids/9", None, 404, 40403),
        ("GET", "/schemas/ids/x", None, 404, 40403),
        ("GET", "/schemas/ids/99999999999", None, 404, 40403),
        ("GET", "/schemas/ids/9/subjects", None, 404, 40403),
        ("GET", "/schemas/guids/nonsense", None, 404, 40403),
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/subjects/none/versions/1", None, 404, 40401),
        ("GET", "/subjects/a-value/versions/9", None, 404, 40402),
        ("GET", "/subjects/a-value/versions/0", None, 422, 42202),
        ("GET", "/subjects/a-value/versions/earliest", None, 422, 42202),
        ("GET", "/subjects/a-value/versions/2147483648", None, 422, 42202),
        ("DELETE", "/subjects/none", None, 404, 40401),
        ("DELETE", "/subjects/none/versions/1", None, 404, 40401),
        ("DELETE", "/subjects/a-value/versions/9", None, 404, 40402),
        ("DELETE", "/subjects/a-value?permanent=true", None, 404, 40405),
        ("DELETE", "/subjects/a-value/versions/1?permanent=true", None, 404, 40407),
        ("GET", "/config/a-value", None, 404, 40408),
        ("DELETE", "/config/a-value", None, 404, 40408),
        ("GET", "/mode/a-value", None, 404, 40409),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 422, 42203),
        ("PUT", "/config/a-value", {}, 422, 42203),
        ("PUT", "/config/a-value", {"normalize": "yes"}, 422, 422),
        ("PUT", "/mode", {"mode": "WRITEONLY"}, 422, 42204),
        ("PUT", "/mode", {"mode": "IMPORT"}, 422, 42205),
        ("POST", "/subjects/a-value/versions", {"schema": json.dumps(V2), "id": 5}, 422, 42205),
        ("POST", "/subjects/a-value/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/a-value/versions", {"schema": ""}, 422, 42201),
        ("POST", "/subjects/a-value/versions", {}, 422, 42201),
        ("POST", "/subjects/a-value/versions", {"schema": '"int"', "schemaType": "XML"}, 422, 42201),
        ("POST", "/subjects/a-value/versions", {"schema": "[]x", "schemaType": "JSON"}, 422, 42201),
        ("POST", "/subjects/a-value/versions", {"schema": "message", "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "/subjects/a-value/versions", {"schema": '"\\ud800"'}, 422, 42201),
        ("POST", "/subjects/a-value/versions", {"schema": 5}, 400, 400),
        ("POST", "/subjects/a-value/versions", [], 400, 400),
        ("POST", "/subjects/a-value/versions", b"not json", 400, 400),
        ("POST", "/subjects/a-value/versions", {"schema": '"int"', "references": [{"name": "x"}]}, 400, 400),
        ("POST", "/subjects/a-value/versions", {"schema": '"int"', "metadata": {"properties": []}}, 422, 422),
        ("POST", "/subjects/a-value/versions", {"schema": '"int"', "metadata": {"tags": {"a": "b"}}}, 422, 422),
        ("POST", "/subjects/a-value/versions", {"schema": '"int"', "ruleSet": {"domainRules": [1]}}, 422, 422),
        ("PUT", "/config/a-value", {"defaultMetadata": {"properties": {"a": 1}}}, 422, 422),
        ("GET", "/subjects?subjectPrefix=:*:%00", None, 422, 42208),
        ("POST", "/subjects/:.broken/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/subjects/a%00b/versions", {"schema": '"int"'}, 422, 42208),
        ("POST", "/compatibility/subjects/a-value/versions/9", {"schema": '"int"'}, 404, 40402),
        ("GET", "/subjects?limit=many", None, 400, 400),
        ("GET", "/subjects/a-value/metadata", None, 400, 400),
        ("GET", "/nothing/here", None, 404, 404),
        ("PUT", "/subjects", None, 405, 405),
    ],
)
async def test_errors_have_confluents_format_and_code(
    registry: RegistryNode, method: str, path: str, body: Any, status: int, code: int
) -> None:
    await registry.register("a-value", V1)
    answer = await registry.ask(method, path, body)

    assert (answer.status, answer.body["error_code"]) == (status, code), answer.body
    assert answer.body["message"]


async def test_an_incompatible_schema_is_refused_with_the_reasons(registry: RegistryNode) -> None:
    await registry.register("a-value", V1)
    refused = await registry.post("/subjects/a-value/versions", {"schema": json.dumps(BAD)})
    checked = await registry.post("/compatibility/subjects/a-value/versions/latest", {"schema": json.dumps(BAD)})
    verbose = await registry.post("/compatibility/subjects/a-value/versions?verbose=true", {"schema": json.dumps(BAD)})
    fine = await registry.post("/compatibility/subjects/a-value/versions/1?verbose=true", {"schema": json.dumps(V2)})
    unknown = await registry.post("/compatibility/subjects/none/versions/latest", {"schema": json.dumps(BAD)})

    assert (refused.status, refused.body["error_code"]) == (409, 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.body["message"]
    assert "note" in refused.body["message"]
    assert checked.body == {"is_compatible": False}
    assert verbose.body["is_compatible"] is False
    assert any("note" in message for message in verbose.body["messages"])
    assert fine.body == {"is_compatible": True, "messages": []}
    assert unknown.body == {"is_compatible": True}


async def test_levels_are_set_per_subject_and_for_all(registry: RegistryNode) -> None:
    assert (await registry.get("/config")).body == {"compatibilityLevel": "BACKWARD"}
    assert (await registry.put("/config", {"compatibility": "full"})).body == {"compatibility": "FULL"}
    assert (await registry.get("/config")).body == {"compatibilityLevel": "FULL"}
    assert (await registry.put("/config/a", {"compatibility": "NONE", "normalize": True})).status == 200
    assert (await registry.get("/config/a")).body == {"compatibilityLevel": "NONE", "normalize": True}
    assert (await registry.get("/config/b?defaultToGlobal=true")).body == {"compatibilityLevel": "FULL"}
    assert (await registry.delete("/config/a")).body == {"compatibilityLevel": "NONE", "normalize": True}
    assert (await registry.get("/config/a")).status == 404
    assert (await registry.delete("/config")).body == {"compatibilityLevel": "FULL"}
    assert (await registry.get("/config")).body == {"compatibilityLevel": "BACKWARD"}


async def test_level_none_allows_any_next_version(registry: RegistryNode) -> None:
    await registry.register("a", V1)
    await registry.put("/config/a", {"compatibility": "NONE"})

    assert await registry.register("a", BAD) == 2
    assert await registry.register("a", '{"type":"object"}', schemaType="JSON") == 3


async def test_a_schema_of_another_type_is_incompatible(registry: RegistryNode) -> None:
    await registry.register("a", V1)
    refused = await registry.post("/subjects/a/versions", {"schema": PROTO, "schemaType": "PROTOBUF"})

    assert refused.status == 409
    assert "SCHEMA_TYPE_CHANGED" in refused.body["message"]


async def test_deleting_is_soft_first(registry: RegistryNode) -> None:
    await registry.register("a", V1)
    await registry.register("a", V2)
    assert (await registry.delete("/subjects/a/versions/1")).body == 1
    again = await registry.delete("/subjects/a/versions/1")
    hidden = await registry.get("/subjects/a/versions/1")
    shown = await registry.get("/subjects/a/versions/1?deleted=true")

    assert (again.status, again.body["error_code"]) == (404, 40406)
    assert (hidden.status, hidden.body["error_code"]) == (404, 40402)
    assert (shown.status, shown.body["deleted"]) == (200, True)
    assert (await registry.get("/subjects/a/versions")).body == [2]
    assert (await registry.get("/subjects/a/versions?deleted=true")).body == [1, 2]
    assert (await registry.get("/subjects/a/versions?deletedOnly=true")).body == [1]
    assert (await registry.get("/schemas/ids/1")).status == 200
    assert (await registry.get("/schemas/ids/1/subjects")).body == []
    assert (await registry.get("/schemas/ids/1/subjects?deleted=true")).body == ["a"]
    assert (await registry.delete("/subjects/a/versions/1?permanent=true")).body == 1
    assert (await registry.get("/subjects/a/versions?deleted=true")).body == [2]
    assert (await registry.get("/schemas/ids/1")).body["error_code"] == 40403


async def test_a_deleted_subject_can_be_registered_again_or_be_gone(registry: RegistryNode) -> None:
    await registry.register("a", V1)
    await registry.register("a", V2)
    await registry.put("/config/a", {"compatibility": "NONE"})
    assert (await registry.delete("/subjects/a")).body == [1, 2]
    again = await registry.delete("/subjects/a")
    assert (again.status, again.body["error_code"]) == (404, 40404)
    assert (await registry.get("/subjects")).body == []
    assert (await registry.get("/subjects?deleted=true")).body == ["a"]
    assert (await registry.get("/subjects?deletedOnly=true")).body == ["a"]
    assert (await registry.get("/config/a")).status == 404
    assert await registry.register("a", V1) == 1
    assert (await registry.get("/subjects/a/versions")).body == [3]
    assert (await registry.delete("/subjects/a")).body == [3]
    assert (await registry.delete("/subjects/a?permanent=true")).body == [1, 2, 3]
    assert (await registry.get("/subjects?deleted=true")).body == []
    assert (await registry.get("/subjects/a/versions?deleted=true")).body["error_code"] == 40401


async def test_modes_forbid_and_allow_writes(registry: RegistryNode) -> None:
    await registry.register("a", V1)
    assert (await registry.get("/mode")).body == {"mode": "READWRITE"}
    assert (await registry.put("/mode/a", {"mode": "READONLY"})).body == {"mode": "READONLY"}
    same = await registry.post("/subjects/a/versions", {"schema": json.dumps(V1)})
    refused = await registry.post("/subjects/a/versions", {"schema": json.dumps(V2)})
    deleting = await registry.delete("/subjects/a")
    configuring = await registry.put("/config/a", {"compatibility": "NONE"})

    assert same.body["id"] == 1
    for answer in (refused, deleting, configuring):
        assert (answer.status, answer.body["error_code"]) == (422, 42205)
    assert (await registry.get("/mode/b?defaultToGlobal=true")).body == {"mode": "READWRITE"}
    assert (await registry.delete("/mode/a")).body == {"mode": "READONLY"}
    assert await registry.register("a", V2) == 2
    await registry.put("/mode", {"mode": "READONLY_OVERRIDE"})
    await registry.put("/mode/a", {"mode": "READWRITE"})
    overridden = await registry.post("/subjects/a/versions", {"schema": json.dumps(V1 | {"doc": "x"})})
    assert overridden.body["error_code"] == 42205


async def test_an_import_keeps_ids_and_versions(registry: RegistryNode) -> None:
    assert (await registry.put("/mode/a", {"mode": "IMPORT"})).status == 200
    await registry.register("a", V1, id=100, version=4)
    await registry.register("a", BAD, id=90, version=5)
    taken = await registry.post("/subjects/a/versions", {"schema": json.dumps(V2), "id": 100, "version": 6})
    without_id = await registry.post("/subjects/a/versions", {"schema": json.dumps(V2)})
    await registry.put("/mode/a", {"mode": "READWRITE"})
    following = await registry.register("a", BAD | {"doc": "next"})

    assert (await registry.get("/subjects/a/versions")).body == [4, 5, 6]
    assert (taken.status, taken.body["error_code"]) == (422, 42205)
    assert without_id.body["error_code"] == 42205
    assert following == 101
    assert (await registry.put("/mode/a", {"mode": "IMPORT"})).body["error_code"] == 42205
    assert (await registry.put("/mode/a?force=true", {"mode": "IMPORT"})).status == 200


@pytest.mark.parametrize(
    ("kind", "base", "name", "user"),
    [
        (
            "AVRO",
            '{"type":"record","name":"Base","namespace":"x","fields":[]}',
            "x.Base",
            '{"type":"record","name":"User","namespace":"x","fields":[{"name":"b","type":"x.Base"}]}',
        ),
        ("JSON", '{"type":"string"}', "base.json", '{"type":"object","properties":{"b":{"$ref":"base.json"}}}'),
        (
            "PROTOBUF",
            'syntax = "proto3"; message Base {}',
            "x/base.proto",
            'syntax = "proto3"; import "x/base.proto"; message User { Base b = 1; }',
        ),
    ],
)
async def test_a_schema_can_reference_versions_of_other_subjects(
    registry: RegistryNode, kind: str, base: str, name: str, user: str
) -> None:
    reference = {"name": name, "subject": "base", "version": 1}
    alone = await registry.post("/subjects/user/versions", {"schema": user, "schemaType": kind})
    absent = await registry.post(
        "/subjects/user/versions", {"schema": user, "schemaType": kind, "references": [reference]}
    )
    await registry.register("base", base, schemaType=kind)
    schema_id = await registry.register("user", user, schemaType=kind, references=[reference])
    again = await registry.register("user", user, schemaType=kind, references=[reference | {"version": -1}])
    deleting = await registry.delete("/subjects/base/versions/1")

    assert (alone.body["error_code"], absent.body["error_code"]) == (42201, 42201)
    assert (schema_id, again) == (2, 2)
    assert (await registry.get("/schemas/ids/2")).body["references"] == [reference]
    assert (await registry.get("/subjects/base/versions/1/referencedby")).body == [2]
    assert (await registry.get("/subjects/user/versions/1/referencedby")).body == []
    assert (deleting.status, deleting.body["error_code"]) == (422, 42206)
    assert (await registry.delete("/subjects/user")).body == [1]
    assert (await registry.delete("/subjects/base")).body == [1]


async def test_contexts_are_name_spaces_of_subjects_and_ids(registry: RegistryNode) -> None:
    await registry.register("a", V1)
    await registry.register(":.test:a", V2)
    await registry.register(":.test:a", V2 | {"doc": "more"})
    await registry.put("/config/:.test:", {"compatibility": "NONE"})

    assert (await registry.get("/contexts")).body == [".", ".test"]
    assert (await registry.get("/subjects")).body == ["a", ":.test:a"]
    assert (await registry.get("/subjects?subjectPrefix=:.test:")).body == [":.test:a"]
    assert (await registry.get("/subjects?subjectPrefix=a")).body == ["a"]
    assert (await registry.get("/subjects/:.test:a/versions")).body == [1, 2]
    assert (await registry.get("/schemas/ids/1?subject=:.test:")).body["schema"] == text(V2)
    assert (await registry.get("/schemas/ids/1")).body["schema"] == text(V1)
    assert (await registry.get("/config/:.test:a?defaultToGlobal=true")).body["compatibilityLevel"] == "NONE"
    assert (await registry.get("/contexts/.test/subjects")).body == [":.test:a"]
    assert (await registry.get("/contexts/:.test:/subjects/a/versions")).body == [1, 2]
    assert (await registry.get("/contexts/.test/schemas/ids/1")).body["schema"] == text(V2)
    inside = await registry.post("/contexts/.test/subjects/b/versions", {"schema": '"int"'})
    assert inside.body["id"] == 3
    assert (await registry.get("/subjects/:.test:b/versions/latest")).body["subject"] == ":.test:b"


async def test_lists_are_returned_in_pages(registry: RegistryNode) -> None:
    for name in ("a", "b", "c"):
        await registry.register(name, V1)
    await registry.register("b", V2)

    assert (await registry.get("/subjects?offset=1&limit=1")).body == ["b"]
    assert (await registry.get("/subjects?limit=0")).body == []
    found = (await registry.get("/schemas?subjectPrefix=b")).body
    latest = (await registry.get("/schemas?latestOnly=true")).body
    assert [(schema["subject"], schema["version"], schema["id"]) for schema in found] == [("b", 1, 1), ("b", 2, 2)]
    assert [(schema["subject"], schema["version"]) for schema in latest] == [("a", 1), ("b", 2), ("c", 1)]
    assert (await registry.get("/schemas?offset=2&limit=1")).body[0]["version"] == 2


async def test_metadata_and_rules_are_kept_and_inherited(registry: RegistryNode) -> None:
    metadata = {"properties": {"owner": "orders", "major": "1"}, "tags": {"Order.id": ["PII"]}}
    rule_set = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]}
    await registry.register("a", V1, metadata=metadata, ruleSet=rule_set)
    plain = await registry.register("a", V1)
    following = await registry.register("a", V2)
    changed = await registry.register("a", V2, metadata={"properties": {"major": "2"}})

    assert (plain, following, changed) == (1, 2, 3)
    inherited = (await registry.get("/schemas/ids/2")).body
    assert (inherited["metadata"], inherited["ruleSet"]) == (metadata, rule_set)
    found = await registry.get("/subjects/a/metadata?key=owner&value=orders")
    assert found.body["version"] == 2
    none = await registry.get("/subjects/a/metadata?key=owner&value=nobody")
    assert none.body["error_code"] == 40402


async def test_only_versions_of_the_same_group_are_compared(registry: RegistryNode) -> None:
    await registry.put("/config/a", {"compatibilityGroup": "major"})
    await registry.register("a", V1, metadata={"properties": {"major": "1"}})
    refused = await registry.post(
        "/subjects/a/versions", {"schema": json.dumps(BAD), "metadata": {"properties": {"major": "1"}}}
    )

    assert refused.status == 409
    assert await registry.register("a", BAD, metadata={"properties": {"major": "2"}}) == 2


async def test_configs_add_and_impose_metadata(registry: RegistryNode) -> None:
    config = {
        "defaultMetadata": {"properties": {"owner": "nobody", "zone": "eu"}},
        "overrideMetadata": {"properties": {"checked": "yes"}},
    }
    await registry.put("/config/a", config)
    await registry.register("a", V1, metadata={"properties": {"owner": "me"}})

    shown = (await registry.get("/schemas/ids/1")).body
    assert shown["metadata"]["properties"] == {"owner": "me", "zone": "eu", "checked": "yes"}


async def test_normalizing_unifies_spellings(registry: RegistryNode) -> None:
    first = {"type": "record", "name": "R", "fields": [], "b": 1, "a": 2}
    second = {"type": "record", "name": "R", "fields": [], "a": 2, "b": 1}
    await registry.register("plain", first)
    assert await registry.register("plain", second) == 2
    normal = await registry.post("/subjects/normal/versions?normalize=true", {"schema": json.dumps(first)})
    again = await registry.post("/subjects/normal/versions?normalize=true", {"schema": json.dumps(second)})
    await registry.put("/config/configured", {"normalize": True})
    configured = [await registry.register("configured", schema) for schema in (first, second)]

    assert normal.body["id"] == again.body["id"] == 2
    assert configured == [2, 2]
    looked_up = await registry.post("/subjects/normal?normalize=true", {"schema": json.dumps(first)})
    assert looked_up.body["version"] == 1


async def test_protobuf_texts_differ_in_comments_only_once(registry: RegistryNode) -> None:
    first = await registry.register("a", "// ours\n" + PROTO, schemaType="PROTOBUF")
    second = await registry.register("a", PROTO.replace("\n", " "), schemaType="PROTOBUF")
    serialized = (await registry.get("/schemas/ids/1?format=serialized")).body["schema"]
    third = await registry.register("a", serialized, schemaType="PROTOBUF")
    elsewhere = await registry.register("b", serialized, schemaType="PROTOBUF")

    assert first == second == third == elsewhere == 1
    shown = (await registry.get("/schemas/ids/1")).body
    assert (shown["schema"], shown["schemaType"]) == ("// ours\n" + PROTO, "PROTOBUF")


async def test_guids_name_schemas_across_contexts(registry: RegistryNode) -> None:
    made = await registry.post("/subjects/a/versions", {"schema": json.dumps(V1)})
    await registry.register(":.x:a", V2)
    await registry.register(":.x:a", V1 | {"doc": "none"})
    await registry.put("/config/:.x:a", {"compatibility": "NONE"})
    other = await registry.post("/subjects/:.x:a/versions", {"schema": json.dumps(V1)})
    guid = made.body["guid"]

    assert other.body["guid"] == guid
    assert (await registry.get(f"/schemas/guids/{guid}")).body["schema"] == text(V1)
    assert (await registry.get(f"/schemas/guids/{guid}/ids")).body == [
        {"context": ".", "id": 1},
        {"context": ".x", "id": 3},
    ]


async def test_avro_references_can_be_resolved_into_the_text(registry: RegistryNode) -> None:
    await registry.register("base", {"type": "fixed", "name": "Base", "size": 4})
    user = {"type": "record", "name": "User", "fields": [{"name": "b", "type": "Base"}]}
    reference = {"name": "Base", "subject": "base", "version": 1}
    await registry.register("user", user, references=[reference])

    resolved = (await registry.get("/schemas/ids/2?format=resolved")).body["schema"]
    assert json.loads(resolved)["fields"][0]["type"] == {"type": "fixed", "name": "Base", "size": 4}


async def test_subjects_may_have_slashes_spaces_and_unicode(registry: RegistryNode) -> None:
    for name, path in (("a/b", "a%2Fb"), ("a b", "a%20b"), ("größe", "gr%C3%B6%C3%9Fe"), ("a%b", "a%25b")):
        await registry.register(path, V1)
        assert (await registry.get(f"/subjects/{path}/versions/1")).body["subject"] == name
    assert sorted((await registry.get("/subjects")).body) == ["a b", "a%b", "a/b", "größe"]


async def test_content_types_are_negotiated(registry: RegistryNode) -> None:
    body = json.dumps({"schema": '"int"'}).encode()
    as_json = await registry.post(
        "/subjects/a/versions", body, headers={"Content-Type": "application/json", "Accept": "application/json"}
    )
    form = await registry.post(
        "/subjects/a/versions", body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    zipped = await registry.post("/subjects/a/versions", gzip.compress(body), headers={"Content-Encoding": "gzip"})

    assert (as_json.status, as_json.headers["Content-Type"]) == (200, "application/json")
    assert (form.status, form.body["error_code"]) == (415, 415)
    assert zipped.body["id"] == 1


async def test_bodies_and_requests_have_limits() -> None:
    async with AsyncExitStack() as closing:
        small = await started(closing, settings=RegistrySettings(request_bytes_max=1000))
        none = await started(closing, settings=RegistrySettings(request_count_max=0))
        large = await small.post("/subjects/a/versions", {"schema": " " * 2000})
        bomb = await small.post(
            "/subjects/a/versions", gzip.compress(b" " * 100_000), headers={"Content-Encoding": "gzip"}
        )
        busy = await none.get("/subjects")

    assert (large.status, large.body["error_code"]) == (413, 413)
    assert bomb.status == 413
    assert (busy.status, busy.headers["Retry-After"]) == (503, "1")


async def test_a_too_large_schema_is_refused(registry: RegistryNode) -> None:
    huge = {"type": "enum", "name": "E", "symbols": [f"S{at}" for at in range(200_000)]}
    answer = await registry.post("/subjects/a/versions", {"schema": json.dumps(huge)})

    assert (answer.status, answer.body["error_code"]) == (422, 42209)


async def test_nested_texts_end_in_an_answer(registry: RegistryNode) -> None:
    depth = 20_000
    avro = await registry.post("/subjects/a/versions", {"schema": "[" * depth + "]" * depth})
    schema = '{"not":' * depth + "true" + "}" * depth
    nested = await registry.post("/subjects/b/versions", {"schema": schema, "schemaType": "JSON"})
    proto = 'syntax = "proto3"; ' + "message A { " * depth + "}" * depth
    messages = await registry.post("/subjects/c/versions", {"schema": proto, "schemaType": "PROTOBUF"})

    for answer in (avro, nested, messages):
        assert (answer.status, answer.body["error_code"]) == (422, 42201)


async def test_requests_that_tools_send_first(registry: RegistryNode) -> None:
    assert (await registry.get("/")).body == {}
    assert set((await registry.get("/schemas/types")).body) == {"AVRO", "JSON", "PROTOBUF"}
    assert (await registry.get("/v1/metadata/id")).body["id"] == "cluster"
    assert (await registry.get("/v1/metadata/version")).status == 200
    assert (await registry.get("/schemas/ids/1?fetchMaxId=true")).status == 404
    await registry.register("a", V1)
    assert (await registry.get("/schemas/ids/1?fetchMaxId=true")).body["maxId"] == 1


async def test_an_alias_is_read_instead_of_its_subject(registry: RegistryNode) -> None:
    await registry.register("real", '"int"')
    assert (await registry.put("/config/nick", {"alias": "real"})).status == 200
    latest = await registry.get("/subjects/nick/versions/latest")

    assert (latest.body["subject"], latest.body["version"]) == ("real", 1)
    assert (await registry.get("/subjects/nick/versions")).body == [1]
    assert (await registry.get("/subjects/none/versions")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "words"),
    [
        ("GET", "/nothing", None, 404, "/nothing"),
        ("PATCH", "/subjects", {}, 405, "GET,HEAD"),
        ("POST", "/subjects/s/versions", [1], 400, "JSON"),
        ("POST", "/subjects/s/versions", b"{", 400, "JSON"),
        ("POST", "/subjects/s/versions", {}, 42201, "schema"),
        ("POST", "/subjects/s/versions", {"schema": 1}, 400, "schema"),
        ("POST", "/subjects/s/versions", {"schema": "1", "references": {}}, 400, "references"),
        ("POST", "/subjects/s/versions", {"schema": "1", "references": [1]}, 400, "references"),
        ("POST", "/subjects/s/versions", {"schema": "1", "schemaType": "XML"}, 42201, "AVRO, JSON, PROTOBUF"),
        ("POST", "/subjects/s/versions", {"schema": "1", "id": "x"}, 400, "id"),
        ("POST", "/subjects/s", {"schema": '"long"'}, 40403, "'s'"),
        ("POST", "/subjects/none", {"schema": '"long"'}, 40401, "'none'"),
        ("GET", "/subjects/s/versions/7", None, 40402, "7"),
        ("GET", "/subjects/s/versions/first", None, 42202, "latest"),
        ("GET", "/subjects?offset=x", None, 400, "offset"),
        ("GET", "/subjects/s/metadata?key=a", None, 400, "key"),
        ("GET", "/schemas/ids/99", None, 40403, "99"),
        ("GET", "/schemas/guids/x", None, 40403, "x"),
        ("GET", "/config/s", None, 40408, "'s'"),
        ("GET", "/mode/s", None, 40409, "'s'"),
        ("PUT", "/config", {"compatibility": "SOME"}, 42203, "full_transitive"),
        ("PUT", "/config", {"colour": 1}, 422, "compatibilityGroup"),
        ("PUT", "/config", {"normalize": "yes"}, 422, "normalize"),
        ("PUT", "/mode", {"mode": "SOME"}, 42204, "READONLY_OVERRIDE"),
        ("DELETE", "/subjects/s?permanent=true", None, 40405, "'s'"),
        ("DELETE", "/subjects/s/versions/1?permanent=true", None, 40407, "'s'"),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "id": 7}, 42205, "s"),
        ("POST", "/subjects/%3A.c/versions", {"schema": '"int"'}, 42208, ":.context:name"),
        (
            "POST",
            "/subjects/s/versions",
            {"schema": '{"type": "string", "x": 1}', "version": 9},
            42201,
            "9",
        ),
    ],
)
async def test_errors_name_the_fault_and_the_expected_value(
    registry: RegistryNode, method: str, path: str, body: Any, code: int, words: str
) -> None:
    await registry.register("s", '"string"')
    answer = await registry.ask(method, path, body)

    assert answer.body["error_code"] == code, answer.body
    assert answer.status == int(str(code)[:3])
    assert words in answer.body["message"], answer.body["message"]


async def test_bodies_may_be_zstd(registry: RegistryNode) -> None:
    body = zstandard.compress(json.dumps({"schema": '"int"'}).encode())
    made = await registry.post("/subjects/s/versions", body, headers={"Content-Encoding": "zstd"})
    damaged = await registry.post("/subjects/s/versions", b"x" * 30, headers={"Content-Encoding": "zstd"})
    strange = await registry.post("/subjects/s/versions", b"x", headers={"Content-Encoding": "br"})

    assert made.status == 200
    assert (damaged.status, damaged.body["error_code"]) == (400, 400)
    assert (strange.status, strange.body["error_code"]) == (415, 415)
