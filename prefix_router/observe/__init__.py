"""What the router tells about itself: events, metrics, log lines."""
