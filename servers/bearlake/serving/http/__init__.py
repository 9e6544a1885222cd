"""What HTTP servers share.

guard.py      around every request: limits, the time it may take, errors in the API's format, metrics
limits.py     marks of handlers that bound their requests themselves
site.py       an HTTP application on listeners: start, stop accepting, count connections, close
"""
