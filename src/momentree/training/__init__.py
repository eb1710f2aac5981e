"""The run: step, loop, checkpoint."""
