"""Hierarchical encoder-decoder models for Hugging Face Transformers.

Importing this package makes its models known to the Auto classes and to `transformers.pipeline`. The import itself is
light: torch and the model files are loaded when something of theirs is first used.
"""

import lazy_loader

from .registration import register


__version__ = "0.1.0"

# The names are those of `__init__.pyi`.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register()
