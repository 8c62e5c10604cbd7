"""Tables of what is billed by type, in YAML; README.md above says how rows are written."""
