"""Signed and encrypted model packages, the keys that protect them, and their versions."""
