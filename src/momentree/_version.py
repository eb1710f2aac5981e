"""The release, in a module of its own so that every other one can name it."""

__version__ = "0.1.0"
