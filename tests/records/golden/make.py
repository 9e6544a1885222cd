"""Makes the golden batches again: `python tests/records/golden/make.py`. The same records, encoded by third-party libraries. The files
are kept because records that a client once wrote must stay readable,
whatever its later versions write.
"""

from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORDS = [
    (1_700_000_000_000, b"key", b"value", []),
    (1_700_000_000_500, None, b"only a value", [("name", b"content"), ("é", b"")]),
    (1_699_999_999_900, b"only a key", None, [("null", None)]),
    *((1_700_000_001_000 + index, b"%d" % index, b"repeated " * 20, []) for index in range(100)),
]

if __name__ == "__main__":
    for library, builder in (("aiokafka", AiokafkaBuilder), ("kafka-python", KafkaPythonBuilder)):
        for name, codec in CODECS.items():
            try:
                batch = builder(2, codec, 0, 4711, 3, 42, 1 << 20)
                for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
                    batch.append(offset, timestamp, key, value, headers)
                content = bytes(batch.build())
            except Exception as error:  # noqa: BLE001 - a library without that codec
                print(f"{library} {name}: {error!r}")
                continue
            Path(__file__).with_name(f"{library}-{name}.bin").write_bytes(content)
