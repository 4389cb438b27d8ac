"""Every strategy on every workload and load, simulated, and judged.

python -m benchmarks.fleetsim_grid            (make bench-routing)
"""
