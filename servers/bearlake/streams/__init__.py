"""The stream API that every protocol server uses. `streams/service.py` is its interface."""
