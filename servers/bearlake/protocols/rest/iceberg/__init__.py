"""Iceberg's REST catalog: other engines load and change the tables of streams with the rights to the streams (docs/table.md).

Source: Apache Iceberg REST Open API specification.
"""
