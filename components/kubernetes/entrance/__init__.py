"""The way into a cluster: listeners, certificates, who is let in, how often."""
