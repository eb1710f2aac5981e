"""Readers and the declared schema: from a file to float32 rows that keep their places.

`schema` says what is public; `readers` opens a file and streams Arrow batches; `cells` and `ingest` turn them into
compact rows by the schema; `store` keeps those; `encode` makes features of a batch; `table` is the data set that a
training run sees, `holdout` the rows outside it. `draft`, `confirm`, `check` and `profile` look at private rows for the
person who writes the schema, and nothing that trains calls them but `confirm.read_from_data`, for the certificate.
"""
