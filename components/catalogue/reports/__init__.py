"""What the catalogue's command shows: rows, what they mean, and where they come from."""
