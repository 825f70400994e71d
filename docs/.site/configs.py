"""Shows the fields of a `@strict` configuration, which is a dataclass, as the arguments that they are."""

from typing import Any

import griffe


class Configs(griffe.Extension):
    """Gives each configuration class the `__init__` of its fields."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Make it, once the class has been read."""
        if not any(str(decorator.value) == "strict" for decorator in cls.decorators):
            return
        fields = [
            griffe.Parameter(
                name, annotation=field.annotation, kind=griffe.ParameterKind.keyword_only, default=field.value
            )
            for name, field in cls.members.items()
            if field.is_attribute and field.annotation and not str(field.annotation).startswith("ClassVar")
        ]
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*fields)))
