"""The cases, one module for each section of the table."""
