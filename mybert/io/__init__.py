"""Files, formats and datasets: reading and writing."""
