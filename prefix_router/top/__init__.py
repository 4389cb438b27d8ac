"""`prefix-router top`: the fleet in a terminal, from the same endpoints as the admin page."""
