"""The Open Inference Protocol v2 over REST, its extensions, and the OpenAPI document of it all."""
