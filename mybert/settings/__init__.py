"""Settings of the commands: declaration, command line, Python calls and files."""
