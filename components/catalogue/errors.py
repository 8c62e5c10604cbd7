"""The one hierarchy of errors of the catalogue."""

from __future__ import annotations


class CatalogueError(Exception):
    """Something was asked for that the catalogue cannot grant.

    The message says what was wrong, what was given, what is allowed and what to change.
    """


class PlaceError(CatalogueError):
    """A cloud or region that is not one of the country's, or that nobody has heard of."""


class DegradedRegionError(CatalogueError):
    """A region is reported as degraded and the report was not acknowledged by its date."""


class DemandError(CatalogueError):
    """A demand that makes no sense anywhere: a misspelt GPU, a negative count, an unknown word."""


class NotSoldError(CatalogueError):
    """What is asked for is not sold in the place; the message names what is."""


class PlacementError(CatalogueError):
    """None of the places named can take what is asked; the message has a reason for each."""
