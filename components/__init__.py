"""Pulumi component resources, one package for each platform."""
