"""Tran & Cutkosky, "Momentum Aggregation for Private Non-convex ERM" (NeurIPS 2022), line by line: slow oracles.

Algorithm 1 `algorithm1`, Algorithm 2 `algorithm2`, Algorithm 3 `compose`, Algorithm 4 `reconstruction`, Algorithm 5
`aggregation`, the full-batch recursion of its section 4 `full_batch`; the constants and theorems `constants`,
`theorems`, `bounds`; the lemmas of its appendix `lemmas`; sensitivities by brute force `tree_sensitivity`.
Where the print cannot run, or contradicts itself, `docs/paper.md` says what is done instead, with a test for each line.
Nothing here is fast, and nothing of the product rests on it except the `paper` figures of a plan.
"""
