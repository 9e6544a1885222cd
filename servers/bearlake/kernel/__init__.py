"""The record-batch kernel."""
