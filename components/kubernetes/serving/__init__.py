"""What an inference service in a cluster is rendered from."""
