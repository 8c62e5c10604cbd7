"""A second version that answers a share of the requests: those of the same keys, always."""
