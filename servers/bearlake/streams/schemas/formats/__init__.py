"""Schema formats: each parses a text, produces its canonical form, and finds incompatibilities of a reader with a writer."""
