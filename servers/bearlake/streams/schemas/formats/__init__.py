"""The formats of schemas: each parses a text, knows its canonical form, and says what a reader cannot read of a writer."""
