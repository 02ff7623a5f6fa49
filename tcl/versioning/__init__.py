"""Versions of the measurements, in DVC and git."""
