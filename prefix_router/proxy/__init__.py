"""I/O on the data path: accepting a request, asking for a decision, moving the bytes."""
