"""Workloads for the fleet simulator: requests made up at random, the same for the same seed."""
