"""Starts the runs of a pipeline in a cluster: by the clock, for new data, or for who asks."""
