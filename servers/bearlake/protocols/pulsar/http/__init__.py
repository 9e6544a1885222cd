"""Pulsar's HTTP API: look-ups, and the admin routes (v2) that clients and `pulsar-admin` call.

    server    listeners, limits, drain
    guard     middleware: redirects, errors in Pulsar's format
    problems  errors as HTTP status and `{"reason": "…"}`
    paths     topics, subscriptions and bodies in requests
    peers     requests to the HTTP API of other servers
    lookups, cluster, topics, statistics, subscriptions, policies, peeking, schemas: the routes

Routes that are not supported return 501 with a reason.
Source: Apache Pulsar, "Admin REST API" v2 and "Lookup REST API" v2.
"""
