"""The server's processes: the master, its workers, what they tell each other, and their logs."""
