"""A conformance suite for HTTP routers in front of vLLM: behaviour over real sockets, for any router."""
