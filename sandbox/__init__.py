"""Stands in for the clouds' providers: stacks run without credentials and without network."""
