"""The Pulumi program: typed settings of the stack, then its platform's blueprint."""

from falaj.stacks.program import main

main()
