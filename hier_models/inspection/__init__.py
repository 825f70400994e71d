"""Pictures of where a model looked, and reports of what it highlighted, and what it copied from where."""

import lazy_loader


# The names are those of `__init__.pyi`.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
