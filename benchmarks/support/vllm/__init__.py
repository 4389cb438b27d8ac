"""Real vLLM replicas on CPU cores, routers in front of them, workloads: for tests and benchmarks."""
