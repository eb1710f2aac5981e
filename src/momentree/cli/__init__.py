"""Parse, call the library, exit code; nothing else."""
