"""A discrete-event simulation of a whole fleet: requests, routers and engines, in simulated time."""
