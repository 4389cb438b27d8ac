"""Stand-ins for what a test or demo cannot have: a vLLM replica without a GPU, workloads."""
