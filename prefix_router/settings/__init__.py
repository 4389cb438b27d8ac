"""The configuration: its model, its loader and its JSON Schema."""
