"""Runs Pulumi where the vendor's downloads cannot be reached."""
