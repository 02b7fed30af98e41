"""Bundle, verify and publish to the Hub."""
