"""The report of a comparison: one HTML file that needs nothing else."""
