"""Which components each kind of stack is made of, and how they connect."""
