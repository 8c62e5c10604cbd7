"""Models in memory, their runs together, and servers that answer in a model's place."""
