"""Translation: a document of any length in, its translation out, for any encoder-decoder model of Transformers."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.pipelines.base import ChunkPipeline
from transformers.utils import logging

from .chunking_hier import join_chunks, pack, plain_sentences, smaller_parts
from .document_pipeline_hier import (
    DocumentPipeline,
    Example,
    Languages,
    Tensors,
    as_list,
    as_text,
    example_of,
    structure_of,
    total_length,
)


logger = logging.get_logger(__name__)

# Names of the task that say the languages, as in Transformers 4: translation_en_to_de, translation_en_XX_to_de_DE.
TASK_NAME = re.compile(r"translation_(.+)_to_(.+)")

# What is counted for each chunk and summed up over a document.
COUNTS = ("num_split_sentences", "num_unfinished_chunks", "num_truncated_tokens")


class TranslationPipeline(DocumentPipeline, ChunkPipeline):
    """Translates documents of any length with an encoder-decoder model.

    A document that is longer than the model can take is cut into chunks between sentences. They are translated one by
    one, and the translations joined with a space. A chunk has as many tokens as the model's config says in
    `task_specific_params` (`max_source_length` of its task), else as many as the model can take, and no more than it
    can write. A sentence longer than that is cut between clauses, else words, else characters, and counted.

    Models that come with a processor of hier_models see where sentences begin. Every other model, such as Marian,
    mBART, NLLB or T5, gets plain text through its tokenizer, with the languages' codes or the prefix that it was
    trained with.

    Generation settings are those of `model.generation_config`, then those in the config's `task_specific_params` that
    it leaves open. Arguments of the call come before both. If nobody sets a length, a chunk's translation ends after
    50 tokens and two for each token of the longest chunk of its batch, or where the decoder can go no further.

    Args:
        model: encoder-decoder model that can generate.
        tokenizer: its tokenizer. Not needed beside a processor.
        processor: its processor, if it has one.
        **kwargs: arguments of `Pipeline`, and defaults for the arguments of the call, such as `src_lang`, `tgt_lang`.

    Raises:
        ValueError: If the model cannot generate from a source text, or if its processor or tokenizer is missing or
            made for another model.

    Example:
        >>> import hier_models
        >>> from transformers import pipeline
        >>> translate = pipeline("translation", model="./my-checkpoint")
        >>> translate("A long document. …", return_chunks=True)
        [{'translation_text': '…', 'num_chunks': 3, 'num_split_sentences': 0, 'num_unfinished_chunks': 0, …}]

    Source: HAT-BART, section 4.2 (chunks cut between sentences, translated one by one and joined).
    """

    structures = ("text", "sentences")
    task_settings = ("prefix", "max_source_length")
    document_arguments = ("max_source_length", "src_lang", "tgt_lang")
    result_arguments = ("return_chunks",)

    def __call__(  # type: ignore[override]
        self, inputs: Any = None, *, text: Any = None, sentences: Any = None, **kwargs: Any
    ) -> Any:
        """Translate one document or many.

        Args:
            inputs: a text; a dictionary with "text" or "sentences" (other entries are not read); or many of these as a
                list, a dataset, or a generator. Without text there is nothing to translate, and the translation is
                empty.
            text: instead of `inputs`: one text, or a list of them.
            sentences: instead of `inputs`: one document as a list of its sentences, or a list of such documents.
            **kwargs: `src_lang` and `tgt_lang` (for models of several languages, in their own codes); `batch_size`
                (chunks at once, of one document or of several, 1; "auto": those of like length, as many as pays),
                `num_workers` (not with "auto"); `max_source_length` (tokens of a chunk), `return_chunks` (False),
                `return_tensors` (False: token ids instead of text), `clean_up_tokenization_spaces` (False),
                `truncation` (False; True cuts a long document at its end instead of making chunks, as in
                Transformers 4); and arguments of `generate`, which hold for each
                chunk, such as `num_beams`, `max_length`, `num_return_sequences`.

        Returns:
            For one document a list of `{"translation_text": …}`, one for each returned sequence, which is made of the
            first, second, … sequences of the chunks. For a list of documents a list of such dictionaries, or of such
            lists if `num_return_sequences` is above 1. For a dataset or a generator an iterator over such lists. With
            `return_chunks`, each dictionary has `num_chunks`, `num_split_sentences` (sentences longer than a chunk may
            be), `num_unfinished_chunks` (translations that ended because they reached the maximum length) and
            `num_truncated_tokens` (0 without `truncation`). With `return_tensors` it has `translation_token_ids`, the
            chunks' ids one after the other, instead of `translation_text`.

        Raises:
            ValueError: If the input is not one of the above, if the model needs to know languages that are not given
                or does not have them, or if a translation may become longer than the model's decoder can go.
        """
        return self._call(inputs, {"text": text, "sentences": sentences}, **kwargs)

    def preprocess(  # type: ignore[override]
        self,
        input_: Any,
        truncation: bool = False,
        max_source_length: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Cut one document into chunks and tokenize them."""
        name, value = structure_of(input_, self.structures)
        languages = self._languages(src_lang, tgt_lang)
        settings = self._language_settings(languages, given=src_lang is not None or tgt_lang is not None)
        limit = self._chunk_limit(max_source_length, languages)
        sentences = self._sentences(name, value)
        if not "".join(sentences).strip():
            examples = [self._blank()]
        elif truncation:
            examples = [self._encode(sentences, languages, limit)]
        else:
            examples = list(self._chunks(sentences, languages, limit))
        for number, example in enumerate(examples, start=1):
            example.settings, example.languages = settings, languages
            counts = {"num_split_sentences": 0, "num_truncated_tokens": 0, "is_last": int(number == len(examples))}
            example.counts = {**counts, **example.counts}
            yield {"examples": example}

    def _sentences(self, name: str, value: Any) -> list[str]:
        splits = hasattr(self.processor, "split_sentences")
        if name == "sentences":
            sentences = [as_text(name, [sentence], replace=splits) for sentence in as_list(name, value)]
        else:
            text = as_text(name, value, replace=splits)
            # Without a processor one piece, as in Transformers 4; it is cut into sentences only if it is too long.
            sentences = [text[start:end] for start, end in self.processor.split_sentences(text)] if splits else [text]
        # Line breaks inside a sentence are no part of what such a model was trained on.
        return [" ".join(sentence.split()) for sentence in sentences] if splits else sentences

    def _encode(self, parts: list[str], languages: Languages, limit: int | None = None) -> Example:
        if hasattr(self.processor, "extra_inputs"):
            return self._process("sentences", parts, limit)
        return self._tokenize(self._prefix(languages) + " ".join(parts), limit)

    def _blank(self) -> Example:
        """A document without text: its translation is empty, whatever the model makes of it."""
        example = self._encode([""], (None, None))
        if not len(example):
            end = self.model.config.eos_token_id
            example.inputs = {name: [end if name == "input_ids" else 1] for name in example.inputs}
        example.notes["is_blank"] = True
        return example

    def _chunks(self, sentences: list[str], languages: Languages, limit: int | None) -> Iterator[Example]:
        whole = self._encode(sentences, languages)
        if limit is None or len(whole) <= limit:
            yield whole
            return
        if not hasattr(self.processor, "split_sentences"):
            sentences = [part for sentence in sentences for part in plain_sentences(sentence)]
        for example, number in self._packed(sentences, languages, limit):
            if example is not None:
                yield example
                continue
            first, *others = self._pieces(sentences[number], languages, limit)
            first.counts["num_split_sentences"] = 1
            self._say_once(
                "sentence",
                f"A sentence is longer than the {limit} tokens of a chunk; it is cut and translated in "
                f"{1 + len(others)} pieces. return_chunks=True returns the number of such sentences.",
            )
            yield first
            yield from others

    def _packed(
        self, parts: list[str], languages: Languages, limit: int, joiner: str | None = None
    ) -> Iterator[tuple[Example | None, int]]:
        """Chunks of neighbours, or None and the number of a part that is too long for one."""
        # With a joiner the parts are of one sentence, so that no marker stands between them.
        more = int(joiner is None and hasattr(self.processor, "split_sentences"))
        tokens = self.tokenizer([f" {part}" for part in parts], add_special_tokens=False, verbose=False)["input_ids"]

        def encode(start: int, end: int) -> tuple[Example, list[int]]:
            chunk = parts[start:end] if joiner is None else [joiner.join(parts[start:end])]
            example = self._encode(chunk, languages)
            return example, [len(example)]

        for start, _, example, fits in pack([[len(ids) + more] for ids in tokens], [limit], encode):
            yield (example if fits else None), start

    def _pieces(self, text: str, languages: Languages, limit: int) -> Iterator[Example]:
        """A sentence that is longer than a chunk, in pieces."""
        parts, joiner = smaller_parts(text)
        if len(parts) < 2:
            raise ValueError(f"`max_source_length` of {limit} tokens is too little for the character {text!r}.")
        for example, number in self._packed(parts, languages, limit, joiner):
            if example is None:
                yield from self._pieces(parts[number], languages, limit)
            else:
                yield example

    def _chunk_limit(self, max_source_length: int | None, languages: Languages) -> int | None:
        own = self._source_limit(max_source_length)
        if max_source_length is not None:
            return own
        params = self._task_params(languages)
        # More than the model can write at once would be left without an end.
        written = total_length(self.model.generation_config, "max", 1)
        written = params.get("max_length") if written is None else written
        lengths = (own, params.get("max_source_length"), self._positions("decoder"), written)
        return min((length for length in lengths if length is not None), default=None)

    def _languages(self, src_lang: str | None, tgt_lang: str | None) -> Languages:
        named = TASK_NAME.fullmatch(self.task or "")
        source, target = named.groups() if named else (None, None)
        return src_lang or source, tgt_lang or target

    def _task_names(self, languages: Languages) -> list[str]:
        pair = [f"translation_{languages[0]}_to_{languages[1]}"] if all(languages) else []
        return [*pair, "translation"]

    def _language_settings(self, languages: Languages, given: bool) -> dict[str, Any]:
        """Tell the tokenizer its languages, where it has any, and `generate` the token that begins the target."""
        tokenizer = self.tokenizer
        if not hasattr(tokenizer, "src_lang"):
            self._say_of_languages(languages, given)
            return {}
        source, target = languages
        if target is None and getattr(tokenizer, "tgt_lang", None) is not None:
            source, target = source or tokenizer.src_lang, tokenizer.tgt_lang
        if source is None or target is None:
            missing = [f"`{name}`" for name, value in (("src_lang", source), ("tgt_lang", target)) if value is None]
            kind = type(tokenizer).__name__
            raise ValueError(f"{' and '.join(missing)} must be given, in its own codes: {kind} has many languages.")
        for name, language in (("src_lang", source), ("tgt_lang", target)):
            if self._language_code(language) is None:
                raise ValueError(f"`{name}` must be a language of {type(tokenizer).__name__}, got {language!r}.")
        if tokenizer.src_lang != source:
            tokenizer.src_lang = source
        return {"forced_bos_token_id": self._language_code(target)}

    def _language_code(self, language: str) -> int | None:
        """The id of a language's token, in any of the ways that tokenizers write one."""
        codes = [self.tokenizer.convert_tokens_to_ids(token) for token in (f"__{language}__", language)]
        known = [code for code in codes if isinstance(code, int) and code != self.tokenizer.unk_token_id]
        # A short code such as "en" may also be a piece of words.
        special = [code for code in known if code in self.tokenizer.all_special_ids]
        return next(iter(special or known), None)

    def _say_of_languages(self, languages: Languages, given: bool) -> None:
        params = getattr(self.model.config, "task_specific_params", None) or {}
        pairs = [name for name in params if TASK_NAME.fullmatch(name)]
        if pairs and not self._task_params(languages):
            say_which = "say which, as the task's name or with src_lang and tgt_lang, or it gets the text as it is"
            self._say_once("pairs", f"The model was trained for {', '.join(pairs)}; {say_which}.", logger)
        elif given and not pairs:
            kind = type(self.tokenizer).__name__
            unused = f"`src_lang` and `tgt_lang` change nothing: {kind} knows no languages."
            self._say_once("languages", unused, logger)

    def _default_new_tokens(self, examples: list[Example]) -> int:
        return 50 + 2 * max(len(example) for example in examples)

    def _looked_up(
        self, examples: list[Example], batch: Tensors, ids: torch.Tensor, output: Any, config: GenerationConfig
    ) -> Tensors:
        """Which translations ended because they had to, (batch, sequences), and which chunks end a document."""
        longest, pad = total_length(config, "max", 1), config.pad_token_id
        last = ids[..., -1]
        if longest is None or ids.shape[-1] < longest:
            done = torch.ones_like(last, dtype=torch.bool)
        else:
            done = torch.zeros_like(last, dtype=torch.bool) if pad is None else last == pad
            # The last token of all may be the end that the model chose, unless it is put there at that length.
            if config.forced_eos_token_id is None and config.eos_token_id is not None:
                done |= torch.isin(last, torch.as_tensor(config.eos_token_id, device=ids.device).reshape(-1))
        with_text = torch.tensor([not example.notes.get("is_blank") for example in examples])
        if not done.cpu()[with_text].all():
            self._say_once(
                "unfinished",
                f"A translation reached the maximum length, {ids.shape[-1]} tokens, before its end. "
                "Consider a larger max_length or a smaller max_source_length; return_chunks=True returns how many.",
            )
        is_last = torch.tensor([example.counts["is_last"] for example in examples])  # which `ChunkPipeline` asks for
        return {"num_unfinished_chunks": (~done).long(), "is_last": is_last}

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: list[dict[str, Any]],
        return_chunks: bool = False,
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, Any]]:
        """Turn the generated ids of a document's chunks into its translations."""
        decoded = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        records: list[dict[str, Any]] = []
        chunks = [output for output in model_outputs if not example_of(output).notes.get("is_blank")]
        for number in range(model_outputs[0]["output_ids"].shape[1]):
            rows = [output["output_ids"][0, number] for output in chunks]  # (target,) each
            if return_tensors:
                ids = torch.cat(rows) if rows else model_outputs[0]["output_ids"].new_zeros(0)
                record: dict[str, Any] = {"translation_token_ids": ids}
            else:
                texts = [self.tokenizer.decode(row, **decoded) for row in rows]
                record = {"translation_text": texts[0] if len(texts) == 1 else join_chunks(texts)}
            if return_chunks:
                counts = [
                    example_of(chunk).counts
                    | {"num_unfinished_chunks": int(chunk["num_unfinished_chunks"][0, number])}
                    for chunk in chunks
                ]
                record |= {"num_chunks": len(chunks), **{name: sum(of[name] for of in counts) for name in COUNTS}}
            records.append(record)
        return records
