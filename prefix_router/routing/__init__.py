"""The decision: pure, synchronous, without clock, randomness, logging or I/O."""
