"""Schemas are compiled and compared in child processes that the kernel limits, since compilers meet text that strangers wrote.

    pool      the server's side: a bounded queue, and a few helpers that it starts and ends
    helper    `python -m bearlake.streams.schemas.confined.helper`: imports the compilers once, then forks one child per request
    limits    what a child may use; the kernel ends a child that uses more
    work      what a child can be asked to do, as JSON
    frames    requests and answers on pipes
    compiled  a compiled schema as the server keeps it

A child inherits no socket and no environment variable but the import path, and sees no file but those that it is given. Its death is an
error of that one request. A fork of a small process takes a few milliseconds, where a new Python process would take hundreds.
"""
