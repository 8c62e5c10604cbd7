"""Helm charts and files of manifests in the sandbox: rendered, and registered object by object."""
