"""The waist: streams as every protocol server sees them. `streams/service.py` is its interface."""
