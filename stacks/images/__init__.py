"""Images and charts on their way into a closed network: lists, locks, mirrors, builds."""
