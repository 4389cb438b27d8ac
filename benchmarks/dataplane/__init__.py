"""The data plane of several routers under the same load: `python -m benchmarks.dataplane`."""
