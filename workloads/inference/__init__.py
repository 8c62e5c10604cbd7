"""The inference server: Open Inference Protocol v2 over TLS 1.3, from signed packages."""
