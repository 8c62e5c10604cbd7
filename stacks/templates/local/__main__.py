"""The stack's settings decide what is made; see `falaj settings`."""

from pathlib import Path

from falaj.stacks.program import main

main(Path(__file__).resolve().parent)
