"""The admin listener: probes, metrics, status and explanations, apart from the data port."""
