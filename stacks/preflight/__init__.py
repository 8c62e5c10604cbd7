"""Asks the real cloud, before a deployment, what the catalogue can only remember."""
