"""What each strategy does to a fleet of real vLLM replicas on the CPU.

python -m benchmarks.vllm_fleet            (make bench-vllm)
"""
