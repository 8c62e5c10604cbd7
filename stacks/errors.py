"""The one hierarchy of errors of the stacks and of the ``falaj`` command."""

from __future__ import annotations


class StackError(Exception):
    """A mistake in a stack's configuration or in how a command was called.

    The message says what was wrong, what was given, what is allowed and what to do.
    """


class SettingsError(StackError):
    """A stack's configuration was refused; the message has one paragraph for each problem."""
