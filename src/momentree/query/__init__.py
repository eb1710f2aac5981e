"""What is asked of a batch, with its sensitivity."""
