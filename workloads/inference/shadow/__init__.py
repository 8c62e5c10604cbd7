"""A second version beside the one that serves: it gets copies of requests, and answers nobody."""
