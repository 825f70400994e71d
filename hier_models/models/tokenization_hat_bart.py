"""Tokenizer of HAT-BART for stock scripts, which know no processors: a marker before every sentence of a source."""

import json
from pathlib import Path
from typing import Any, Self

from transformers import BatchEncoding
from transformers.utils.hub import cached_file

from .marked_tokenization import MarkedTokenizer


# Options of `from_pretrained` that say where the files are.
LOCATION = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")


class HatBartTokenizer(MarkedTokenizer):
    """A tokenizer of any kind that puts a BOS token before every sentence of a source: `<s> sentence <s> … </s>`.

    `tokenizer(documents, text_target=summaries)` gives the ids of `HatBartProcessor(text=documents)` and labels
    `<s> summary </s>`. `MarkedTokenizer` says what else there is. There are no `segment_ids`: of roles, only the
    processor knows.

    Source: section 3.1 (BOS tokens).
    """

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *init_inputs: Any, **kwargs: Any) -> Self:  # type: ignore[override]
        """Load the tokenizer of any HAT-BART or BART checkpoint; a `tokenizer.json` is taken as it is.

        Args:
            pretrained_model_name_or_path: Folder or Hub id.
            *init_inputs: As in Transformers.
            **kwargs: As in Transformers; and `language`, by default that of the tokenizer or else of the processor
                that was saved with it.

        Returns:
            The tokenizer. One that cannot set markers (no fast backend, no BOS and EOS) comes as in Transformers.
        """
        # Not at the top: to import it is to register the families, this class among them.
        from transformers import AutoTokenizer, BartConfig

        place = {name: kwargs[name] for name in LOCATION if name in kwargs}
        saved = _read(pretrained_model_name_or_path, "tokenizer_config.json", place)
        language = kwargs.pop("language", saved.get("language"))
        if language is None:
            language = _read(pretrained_model_name_or_path, "processor_config.json", place).get("language", "english")
        is_ours = saved.get("tokenizer_class") == cls.__name__
        made: Any
        if is_ours or _find(pretrained_model_name_or_path, "tokenizer.json", place):
            made = super().from_pretrained(pretrained_model_name_or_path, *init_inputs, **kwargs)
            if is_ours or len({made.bos_token_id, made.eos_token_id} - {None}) == 2:
                made.language = language
                return made  # type: ignore[no-any-return]
        # Slow; or with older files, whose class knows their names and the special tokens, as beside a plain BART.
        made = AutoTokenizer.from_pretrained(
            pretrained_model_name_or_path, *init_inputs, config=BartConfig(), **kwargs
        )
        try:
            return cls.from_tokenizer(made, language)
        except ValueError:
            return made  # type: ignore[no-any-return]

    def _targets(self, text: Any, text_pair: Any, **options: Any) -> BatchEncoding:
        # As the processor has them: with BOS and EOS also where the backend has other ends, or none.
        return self._marked(text, text_pair, sentences=False, **options)


def _find(name: Any, file: str, place: dict[str, Any]) -> str | None:
    try:
        return cached_file(name, file, **place)
    except OSError:
        return None


def _read(name: Any, file: str, place: dict[str, Any]) -> dict[str, Any]:
    found = _find(name, file, place)
    return {} if found is None else json.loads(Path(found).read_text(encoding="utf-8"))
