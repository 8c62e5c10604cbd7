"""The types of the installed SDKs: what each resource takes and gives."""
