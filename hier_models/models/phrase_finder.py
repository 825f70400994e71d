"""Who finds the key phrases of documents, for a processor that highlights them: one protocol, saved by name."""

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .phrase_spans import Phrase, read_phrases


# The file beside a processor's settings.
KEY_PHRASES_FILE = "key_phrases.json"
FORMAT = "hier_models key phrases 1"
TF_IDF = "tf-idf"


class PhraseFinder:
    """Finds the key phrases of documents, for a processor that highlights them.

    A subclass gives itself a name, `class Mine(PhraseFinder, name="mine")`, by which it is saved with a processor and
    found again when that is loaded, in any process where the class was defined before. Its `as_dict` gives the
    arguments that it is made with. A function of one's own needs no class: see [`PhraseFunction`].
    """

    name: str = ""
    _known: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = name  # not that of the class above, which would be loaded instead
        if name:
            PhraseFinder._known[name] = cls

    def find(self, text: str, ranges: Sequence[tuple[int, int]] | None = None) -> list[Phrase]:
        """Find the key phrases of a document.

        Args:
            text: The document.
            ranges: Where to look, as (start, end) in characters, such as what is left of each article; by default
                everywhere. A word that a range cuts is not looked at.

        Returns:
            The phrases, the most important first, with their places in the ranges.

        Raises:
            NotImplementedError: If the class does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `find`")

    def as_dict(self) -> dict[str, Any]:
        """Give the settings, as JSON can have them: what `save` writes, and `from_dict` reads."""
        return {}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "PhraseFinder":
        """Make what gave these settings."""
        return cls(**settings)

    @classmethod
    def named(cls, name: str) -> Any:
        """Give what has a name.

        Args:
            name: The name, such as tf-idf.

        Returns:
            The class, or the [`PhraseFunction`].

        Raises:
            ValueError: If nothing has it.
        """
        if name not in cls._known:
            known = ", ".join(sorted(cls._known))
            raise ValueError(
                f"no finder of key phrases is named {name!r}, only {known}. If it is your own, define it first: a "
                f"class with this name, or PhraseFunction(function, {name!r})"
            )
        return cls._known[name]

    def save(self, file: str | os.PathLike[str]) -> None:
        """Save the name and the settings as JSON.

        Args:
            file: Where to.

        Raises:
            ValueError: If the class has no name to be found again by.
        """
        if not self.name or self.name.endswith("<lambda>"):  # as all of them are called
            kind = type(self).__name__
            named = "PhraseFunction(function, name)" if self.name else f"class {kind}(PhraseFinder, name=…)"
            raise ValueError(f"{kind} cannot be saved without a name: {named}")
        content = {"format": FORMAT, "finder": self.name, **self.as_dict()}
        Path(file).write_text(f"{json.dumps(content, indent=1, ensure_ascii=False)}\n", encoding="utf-8")

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> Any:
        """Load what `save` has saved.

        Args:
            file: Where it is.

        Returns:
            The finder, of the class that has the name in the file.

        Raises:
            ValueError: If the file is none of key phrases or damaged, or nothing has the name in it.
        """
        try:
            content = json.loads(Path(file).read_text(encoding="utf-8"))
            found = content.pop("format")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{file} is no file of key phrases: {error!r}") from error
        if found != FORMAT:
            raise ValueError(f"{file} is in the format {found!r}, and this version reads {FORMAT!r}")
        try:
            known = cls.named(content.pop("finder", TF_IDF))  # once there was no other
        except ValueError as error:
            raise ValueError(
                f"{file}: {error}; or load the processor with `key_phrases=…` (None finds none)"
            ) from None
        if isinstance(known, PhraseFunction):
            return known
        try:
            return known.from_dict(content)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise ValueError(f"{file} is damaged: {error!r}") from error


class PhraseFunction(PhraseFinder):
    """Key phrases by a function of the user's, saved by its name.

    No file holds the function: where a processor with it is loaded, make the same `PhraseFunction` before, or load
    with `key_phrases=function`.

    Args:
        function: Takes a document's text and gives its phrases, in any form that a processor's `phrases=` has:
            phrases alone, (phrase, value) or (start, end, value).
        name: The name to save it by; the function's own if not given.

    Raises:
        TypeError: If the function cannot be called.
        ValueError: If a class of finders has the name.
    """

    def __init__(self, function: Callable[[str], Any], name: str | None = None) -> None:
        if not callable(function):
            raise TypeError(f"`function` must take a text and give its phrases, got {type(function).__name__}")
        self.function = function
        self.name = str(name or getattr(function, "__qualname__", type(function).__name__))
        if isinstance(self._known.get(self.name), type):
            raise ValueError(f"the name {self.name!r} is taken; give another: PhraseFunction(function, name)")
        self._known[self.name] = self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    def find(self, text: str, ranges: Sequence[tuple[int, int]] | None = None) -> list[Phrase]:
        """Ask the function, about all of the text; see [`PhraseFinder`]."""
        places = [(0, len(text))] if ranges is None else ranges
        # Up to where the next begins: there is what truncation took of an article.
        starts = [start for start, _ in places]
        articles = list(zip(starts, [*starts[1:], len(text)], strict=False))
        phrases = []
        for phrase in read_phrases(self.name, self.function(text), text, articles):
            left = tuple((a, b) for a, b in phrase.spans if any(start <= a and b <= end for start, end in places))
            phrases.append(Phrase(phrase.text, phrase.value, left, len(phrase.spans) - len(left)))
        return phrases


def as_finder(finder: Any) -> Any:
    """Make a finder of what a user gives as one, of a function too; None stays None."""
    # By name: perhaps it is that of a checkpoint's own copy of this file.
    if finder is None or PhraseFinder.__name__ in (kind.__name__ for kind in type(finder).__mro__):
        return finder
    if not callable(finder):
        kinds = "a PhraseFinder, a function that gives the phrases of a text, or None"
        raise TypeError(f"`key_phrases` must be {kinds}, got {type(finder).__name__}")
    return PhraseFunction(finder)
