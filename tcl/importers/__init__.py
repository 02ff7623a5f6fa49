"""Tuning logs of other tools, read as measure records."""
