"""One module for each kind of stack: which components it is made of, and how they connect."""
