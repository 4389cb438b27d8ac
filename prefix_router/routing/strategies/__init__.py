"""One file for each way of choosing a backend."""
