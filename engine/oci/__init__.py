"""Tools for images and charts: crane and helm, the machine's own or built from a Go module."""
