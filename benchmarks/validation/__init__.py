"""Whether engine model and fleet simulator are true: against a real vLLM and against published points.

python -m benchmarks.validation            (make validate-simulator)
"""
