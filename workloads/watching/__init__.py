"""Acting on drift of a served model: what is seen, what is decided, what is done, what is kept."""
