"""What is done with the noisy stream; all of it post-processing."""
