"""One settings document for every server: `settings/document.py` composes the packages' declarations, `load.py` reads it."""
