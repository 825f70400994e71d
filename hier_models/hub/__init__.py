"""Checkpoints that work anywhere: export with their code and a model card, and push to the Hub."""

from .auto_classes import model_class, task_of
from .exporting import export, push_to_hub
from .model_card import CardDetails, model_card


__all__ = ["CardDetails", "export", "model_card", "model_class", "push_to_hub", "task_of"]
