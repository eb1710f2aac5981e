"""momentree: private training over ordinary epochs, with correlated noise in the momentum."""

__version__ = "0.1.0"
