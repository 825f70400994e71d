"""Dropout of attention weights, which BART's own checkpoints have, where a fast kernel has none."""


def refuse_flex_dropout(implementation: str | None, dropout: float) -> None:
    """Refuse FlexAttention with dropout, and say how to be rid of it."""
    if dropout and implementation == "flex_attention":
        raise ValueError(
            f"FlexAttention has no dropout of attention weights, got attention_dropout={dropout} (bart-base and "
            "bart-large have 0.1). Load the model with `attention_dropout=0.0` (in `from_bart`, `from_pretrained`, or "
            'a recipe\'s `config_overrides`), or use `model.set_attn_implementation("sdpa")`, which is slower with it.'
        )


__all__ = ["refuse_flex_dropout"]
