"""The schema registry: subjects and their versions, with Confluent's rules, for all protocols.

    service       `Schemas`: the interface for protocol servers
    registration  registers a schema under a subject: looks it up, checks compatibility, assigns an id
    library       schemas by id, and compiled schemas: a bounded cache over the metadata store
    rules         config and mode of subject, context and registry
    parsing       compiles a schema's text and compares schemas; one module per format in `formats/`
    names         syntax of subjects, contexts and versions
    model         values; `problems`: errors with Confluent's codes

Source: Confluent, "Schema Registry API Reference", "Schema Evolution and Compatibility", "Schema Contexts" (public documentation).
"""
