"""Highlight-Transformer: key phrases of the source raise attention weights in some heads of the encoder."""
