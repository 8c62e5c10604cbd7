"""The watch over the server of a stack on one machine, and what it acts on there."""
