"""The paper, line by line, slow and readable: the oracles."""
