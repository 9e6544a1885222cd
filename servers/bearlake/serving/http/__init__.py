"""Code that HTTP servers share.

guard.py      runs around every request: limits, the time limit, errors in the API's format, metrics
limits.py     marks of handlers that set their own limits
site.py       an HTTP application on listeners: start, stop accepting, count connections, close
"""
