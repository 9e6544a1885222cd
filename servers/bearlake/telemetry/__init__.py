"""What the process tells about itself: metrics (`telemetry/metrics.py`) and logs (`telemetry/logs.py`)."""
