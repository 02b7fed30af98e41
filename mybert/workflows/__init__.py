"""Commands that combine several stages."""
