"""One document of settings for every server: `settings/document.py` composes what the packages declare, `load.py` reads it."""
