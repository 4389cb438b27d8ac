"""Several processes behind one port: the pool that owns them, and what they share."""
