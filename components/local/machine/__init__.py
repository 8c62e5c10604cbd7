"""This machine: files, processes and ports, and errors in plain words."""
