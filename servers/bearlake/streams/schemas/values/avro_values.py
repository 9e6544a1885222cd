"""Avro values: converts between the JSON encoding, in which a union's value names its branch, and the binary encoding.

If the whole schema is `bytes`, the value follows the schema's id without a length prefix, as in Confluent's Java serializer.

Source: Avro specification 1.12, "Encodings"; Confluent, "Avro Schema Serializer and Deserializer".
"""

from functools import cached_property
from io import BytesIO
from typing import Any

from avro.errors import AvroException
from avro.io import BinaryDecoder, BinaryEncoder
from typing_extensions import override

from bearlake.streams.schemas.formats.avro import AvroSchema
from bearlake.streams.schemas.values import avro_primitives, avro_reading, avro_writing
from bearlake.streams.schemas.values.model import Unfit, Values


class AvroValues(Values):
    """`Values` of an Avro schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema.schema
        self._is_bytes = self._schema.type == "bytes"

    @override
    def write(self, value: Any) -> bytes:
        written = BytesIO()
        try:
            if self._is_bytes:
                return avro_primitives.octets_of(value)
            self._writer(value, BinaryEncoder(written))
        except RecursionError as error:
            raise Unfit("the value is nested too deeply") from error
        return written.getvalue()

    @override
    def read(self, octets: bytes) -> Any:
        if self._is_bytes:
            return octets.decode("iso-8859-1")
        try:
            return self._reader(BinaryDecoder(BytesIO(octets)))
        except RecursionError as error:
            raise Unfit("the value is nested too deeply") from error
        except (AvroException, TypeError, UnicodeDecodeError) as error:  # TypeError: an empty read in the library
            raise Unfit(f"the bytes are not a value of the schema: {error}") from error

    @cached_property
    def _writer(self) -> avro_primitives.Write:
        return avro_writing.compiled(self._schema)

    @cached_property
    def _reader(self) -> avro_reading.Read:
        return avro_reading.compiled(self._schema)
