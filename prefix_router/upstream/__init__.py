"""The HTTP/1.1 client towards backends: connections, their pool, and errors that say what may be retried."""
