"""The resource provider ``falaj-local``: all that one machine needs to train and serve."""
