"""Who takes part when: one order a file."""
