"""What each vLLM replica has in its KV cache, as the replica itself reports it (docs/kv-events.md)."""
