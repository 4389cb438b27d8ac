"""What the programs that put the router under fire have in common: backends, clients, processes, reports."""
