"""Which backends there are: sources that say it, and the one place that follows them."""
