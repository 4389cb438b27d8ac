"""The wire formats of the OpenAI, Anthropic and vLLM HTTP APIs: pure functions over bytes."""
