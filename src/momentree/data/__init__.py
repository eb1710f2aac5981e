"""Readers and the declared schema."""
