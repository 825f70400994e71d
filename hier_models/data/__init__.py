"""Loading documents, turning them into model inputs, and batching these."""

import lazy_loader


# The names are those of `__init__.pyi`; what takes torch or datasets to import is imported when it is asked for.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
