"""`falaj check`: previews stacks in the sandbox with the policy packs; gathers what they say."""
