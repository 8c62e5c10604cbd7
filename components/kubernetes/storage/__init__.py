"""Volumes of pods: classes by the platform's drivers, each with a key of one's own."""
