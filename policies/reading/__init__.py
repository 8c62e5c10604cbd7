"""Readers of what several packs meet: addresses, ports, IAM documents."""
