"""Pulsar's HTTP API: look-ups, and the admin routes (v2) that clients and `pulsar-admin` call.

    server    listeners, limits, drain
    problems  what is refused, as HTTP status and `{"reason": "…"}`
    paths     topics, subscriptions and bodies in requests
    lookups, cluster, topics, subscriptions, schemas: the routes

What is not served is answered 501 with a reason.
Source: Apache Pulsar, "Admin REST API" v2 and "Lookup REST API" v2.
"""
