"""Quell: the agent runtime where stop means stop."""

__version__ = "0.1.0"
__all__ = ["__version__"]
