"""Policies of others, written anew from their published rules, to compare the router's strategies with."""
