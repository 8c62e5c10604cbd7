"""Facts of the cluster's platform: images and charts, with their sources."""
