"""The Open Inference Protocol v2 over gRPC, beside the HTTP path and by way of it."""
