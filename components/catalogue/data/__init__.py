"""The catalogue's data: JSON files, each with its date and the ids of its sources."""
