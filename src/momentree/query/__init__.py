"""What is asked of a batch, with its sensitivity.

`clipped`: sums of clipped gradients. `differences`: the same of differences between iterates. `probe`: what a model has
to be for either. `engine`, `capture`, `layers/`, `functional`: how per-example gradients are had. `norms`: why no
contribution exceeds its clip. `randomness`: dropout that belongs to its row.
"""
