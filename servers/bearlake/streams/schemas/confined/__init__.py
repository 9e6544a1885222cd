"""Compiles and compares schemas in child processes with resource limits, because the compilers process untrusted text.

    pool      the server's side: a bounded queue, and a few helper processes
    line      whose turn it is
    helper    `python -m bearlake.streams.schemas.confined.helper`: imports the compilers once, then forks one child per request
    limits    resource limits of a child; the kernel kills a child that exceeds them
    work      the requests to a child, as JSON
    frames    the framing of requests and answers on pipes

A child inherits no socket and no environment variable except the import path, and gets only the files of its request. If a child dies, only
its request fails. Forking a small process takes a few milliseconds; starting a new Python process would take hundreds.
"""
