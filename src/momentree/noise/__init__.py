"""Keyed normals that can be drawn again, and the streams that correlate them."""
