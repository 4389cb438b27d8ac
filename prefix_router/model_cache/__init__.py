"""Model files made local before a replica needs them: a cache on each node, and the agents that fill it."""
