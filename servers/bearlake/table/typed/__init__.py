"""Typed columns: what a schema's values look like in a table, and the way there and back, byte for byte.

    columns = mapping.columns_of(SchemaType.AVRO, text)     the columns of a schema, or SchemaError
    codec.decode(columns, values, skip=5)                   values → struct array, and which rows hold their values exactly
    codec.encode(columns, struct, prefix=b"\\0\\0\\0\\0\\7")     struct array → values
    framing.prefixes(values, SchemaType.AVRO)               values → the prefix of each, and with it its schema id

**Exactness.** `Decoded.is_exact` says for each row that encoding it gives the bytes of its value; with `is_verified` this has been
tried. Only such a row may give up its `_value`. All other rows keep theirs: null values, values that were not written in the usual form,
values of which a part does not fit its column (the part is null), and values that cannot be decoded (the whole row is null, and
`Decoded.problems` says why and where).

**JSON** is never exact: texts have spaces, orders of keys and spellings of numbers. All values keep their bytes, and a value of which
a part does not fit its column has no columns at all.

**Nulls.** Every typed column is optional in Arrow and Iceberg, except the keys of maps: rows without typed columns exist, types evolve,
and what does not fit is null. `TypedField.is_nullable` says whether the schema itself has nulls there.

    model       columns and fields, outcomes               naming     names of columns: collisions and reserved names
    mapping     schema → columns, for all types            avro       Avro → columns        avro_types   Avro's types, names resolved
    protobuf    Protobuf descriptors → columns          descriptors  compiled schemas as text, and what a message needs of them
    json_schema  JSON Schema → columns; json_views what a schema says, json_documents where its references point to
    codec       values ↔ columns, on `kernel.decode_avro`, `kernel.encode_avro` and their like; JSON → columns only
    framing     the prefix of Confluent's serializers

Source: Apache Iceberg table spec, "Schemas and Data Types"; Apache Avro 1.12 specification; Confluent, "Wire format".
"""
