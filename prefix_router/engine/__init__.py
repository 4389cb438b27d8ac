"""A pure model of one vLLM engine: block prefix cache, continuous batching, cost of a step."""
