"""Schemas of records: a registry of subjects and their versions, with Confluent's rules, whatever protocol asks.

    service       `Schemas`: what a protocol server calls
    registration  a schema for a subject: look up, check, give an id
    library       schemas by id, parsed with their references: a bounded cache over the metadata store
    rules         config and mode of subject, context and registry
    parsing       a schema's text as a value: parse, canonical form, compare; by format in `formats/`
    names         subjects and contexts as they are written; versions
    model         values; `problems`: errors with Confluent's codes

Source: Confluent, "Schema Registry API Reference", "Schema Evolution and Compatibility", "Schema Contexts" (public documentation).
"""
