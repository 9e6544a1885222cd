"""Observability of the process: metrics (`telemetry/metrics.py`) and logs (`telemetry/logs.py`)."""
