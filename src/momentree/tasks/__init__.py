"""From a table and its declared schema to a model, and back: train, resume, predict, evaluate."""
