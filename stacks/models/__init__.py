"""Sealed packages of models in registries: sent, listed, fetched, and copied between two."""
