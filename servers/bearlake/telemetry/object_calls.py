"""Counts the observations of the metered object store; implements `bearlake.objects.metered.Recorder`."""

from bearlake.telemetry import metrics


class ObjectCalls:
    """Counts attempts, their time, and bytes written and read."""

    def observe(self, operation: str, outcome: str, seconds: float, size_bytes: int) -> None:
        """Record the end of one attempt; see `Recorder.observe`."""
        metrics.OBJECTS_CALLS.labels(operation, outcome).value += 1
        metrics.OBJECTS_SECONDS.labels(operation).observe(seconds)
        if outcome != "ok":
            return
        if operation == "put":
            metrics.OBJECTS_PUT.value += 1
            metrics.OBJECTS_PUT_BYTES.value += size_bytes
        elif operation == "read":
            metrics.OBJECTS_READ_BYTES.value += size_bytes
