"""The local platform: one machine, for a small business, an edge box or a laptop."""
