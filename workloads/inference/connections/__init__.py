"""From bytes to requests and back: HTTP/1.1, content codings, connections, TLS."""
