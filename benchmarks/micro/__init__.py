"""Micro-benchmarks of what every request passes through: `python -m benchmarks.micro`."""
