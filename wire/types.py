"""Types that the engine itself has, beside those of providers."""

from __future__ import annotations

from typing import Final

STACK: Final = "pulumi:pulumi:Stack"
"""The stack itself, the parent of all that has no other."""
STACK_REFERENCE: Final = "pulumi:pulumi:StackReference"
"""What stands in a stack for another one."""
PROVIDER: Final = "pulumi:providers:"
"""How the types of providers themselves begin."""
