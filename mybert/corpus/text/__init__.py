"""Input files to documents and sentences."""
