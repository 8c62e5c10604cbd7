"""Requests that are answered later: the store, the master's queue, a worker's runs."""
