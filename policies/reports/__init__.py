"""Reports of what a check found."""
