"""Values of records as JSON, by schema: read from and written to the bytes that serializers write behind a schema's id."""
