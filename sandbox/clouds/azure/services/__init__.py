"""Azure's services: for each type its row, its rules and what it computes."""
