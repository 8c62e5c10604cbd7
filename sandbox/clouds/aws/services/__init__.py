"""One module for each service: which types it has, and what is known of each."""
