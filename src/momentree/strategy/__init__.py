"""How noise is correlated: one strategy a file."""
