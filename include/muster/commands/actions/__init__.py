"""What the commands do, one idea a file."""
