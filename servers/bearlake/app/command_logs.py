"""How commands log that copy topics."""

from dataclasses import replace

from bearlake.telemetry.logs import LogSettings


def for_commands(settings: LogSettings) -> LogSettings:
    """Return how such a command logs: warnings for people, unless the settings say otherwise."""
    level = "WARNING" if settings.level == "INFO" else settings.level
    return replace(settings, level=level, format="text" if settings.format == "auto" else settings.format)
