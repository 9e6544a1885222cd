"""Converts JSON values to and from the bytes that serializers write after a schema's id."""
