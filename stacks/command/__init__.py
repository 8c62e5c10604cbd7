"""The ``falaj`` command: what the Makefile's targets call."""
