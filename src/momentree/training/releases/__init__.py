"""One step of each algorithm: private sums in, released numbers out."""
