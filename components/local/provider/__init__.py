"""The resource provider ``falaj-local``: what one machine needs to train, keep and serve a model."""
