"""`falaj check`: previews stacks in the sandbox with the policy packs, and gathers what they say."""
