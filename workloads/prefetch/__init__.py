"""Holds images on a node: they are mounted, nothing of them runs, until it is told to stop."""
