"""Metrics that load with no network."""

from .rouge import Rouge


__all__ = ["Rouge"]
