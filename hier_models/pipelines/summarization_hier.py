"""Summarization: text, turns or articles in, summary out, for any encoder-decoder model of Transformers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig

from .copied_words_hier import copied_words, copy_shares
from .document_pipeline_hier import (
    DEFAULT_MAX_NEW_TOKENS,
    Arguments,
    Example,
    Languages,
    Tensors,
    as_text,
    evaluating,
    example_of,
    highlights,
    structure_of,
    total_length,
)
from .importance_tagger_hier import ImportanceTagger, load_importance_tagger
from .long_documents_hier import (
    CLOSING,
    ENDS,
    condense,
    is_about,
    only_sentences,
    page_of,
    parts_of,
    shorten,
    sizes_of,
    tokens_of,
    with_query,
    worth_in,
)
from .long_documents_hier import logger as long_documents_logger
from .sources_hier import attended_sentences, document_sentences, plain_offsets, sources_of_tokens, summary_spans
from .summary_rules_hier import SummaryRules
from .written_form_hier import is_uncased, moved_places, restore_written_form


ASKED = (64, 256)  # least and most tokens read of a document for a query, by a model that does not read the query
ONE_AT_A_TIME = ("streamer", "assistant_model", "prompt_lookup_num_tokens")  # of `generate`, what takes no batch
PART = 256  # tokens of a document that a paragraph of a page is made of


class SummarizationPipeline(SummaryRules):
    """Summarizes documents with an encoder-decoder model.

    Models that come with a processor of hier_models see the document's structure. Every other model, such as BART, T5
    or mBART, gets plain text through its tokenizer, after the prefix in its config if it has one ("summarize: ").

    Of a document longer than the model can take, the beginning is read (of dialogues, none), and the sentences that
    say the most of it (`salience`), in their order and their structure. With `truncation=True` it is cut at the end. A
    warning says so once. Headings and lists are left out of what is read, if there are enough sentences; of texts that
    are not too long where the checkpoint says so, as `mini` does (`task_specific_params = {"summarization":
    {"long_documents": "condense"}}`), which writes them as if they were parts of sentences.

    With a `query`, the sentences are read that are most like it, of every document, so that its summary is about what
    is asked for. Models that were trained so (`query_column` in a recipe; `reads_query` in their config's
    `task_specific_params["summarization"]`) also read the query itself, before the document.

    Models that know lengths (their tokenizer has `[line]`, `[short]` and `[long]`, as that of `mini`) write a line, a
    paragraph or a page: `length`. What writes no good page in one go, as `mini`, says so in its config, with
    `task_specific_params = {"summarization": {"paragraphs": 4}}`: a page is then the short summaries of at most that
    many parts of the document, shorter ones where more is said; with a `query` of one. `truncation` and
    `return_copied` have it written in one go.

    Models with a processor that knows phrases (Highlight-Transformer) read the key phrases that it finds, or
    `phrases`, for all documents of a call, or for one as its entry "phrases".

    Where the tokenizer is uncased, as BERT's, a summary is given back its document's capitals, accents and spaces.

    With `faithful=True`, numbers, names and rare words are written only if the document has them, in the part that the
    model reads. Some thousand common English words are always allowed, and none twice in a row that is not so in the
    document; for other languages, or other kinds of texts, `common_words` names them. A checkpoint sets both in its
    config, `model.config.task_specific_params = {"summarization": {"faithful": True}}`, or as attributes of a
    generation config that was not made from its config (Transformers drops them from one that was).

    Generation settings are those of `model.generation_config`, then those in the config's `task_specific_params` that
    it leaves open. Arguments of the call come before both. If nobody sets a length, a summary ends after 256 tokens.

    Args:
        model: encoder-decoder model that can generate.
        tokenizer: its tokenizer. Not needed beside a processor.
        processor: its processor, if it has one.
        importance_tagger: for a Top-Down Transformer with `pooling="importance"`, what says how important each token
            is: a checkpoint (folder or Hub id), a token classification model, or an `ImportanceTagger`. Where
            hier_models is not installed, load an exported one first, with `trust_remote_code=True`: to trust the
            summarizer's code is not to trust the tagger's.
        **kwargs: arguments of `Pipeline`, and defaults for the arguments of the call.

    Raises:
        ValueError: If the model cannot generate from a source text, if its processor or tokenizer is missing or made
            for another model, or if the tagger is none or the model does not pool by importance.

    Example:
        >>> import hier_models
        >>> from transformers import pipeline
        >>> summarize = pipeline("summarization", model="./my-checkpoint")
        >>> summarize("A long document. …", return_truncation=True)
        [{'summary_text': '…', 'num_truncated_tokens': 0, 'num_truncated_sentences': 0}]
    """

    task_settings = (
        *SummaryRules.task_settings,
        *("faithful", "common_words", "max_source_length", "long_documents", "paragraphs", "reads_query"),
    )
    document_arguments = (
        *("max_source_length", "paragraphs", "query", "phrases", "return_phrases"),
        *("return_copied", "return_sources", "return_encoded_rows"),
    )
    result_arguments = ("length", "return_truncation")

    def __init__(
        self, model: Any, tokenizer: Any = None, processor: Any = None, importance_tagger: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(model=model, tokenizer=tokenizer, processor=processor, **kwargs)
        self.importance_tagger: ImportanceTagger | None = None
        if importance_tagger is not None:
            self.set_importance_tagger(importance_tagger)

    def set_importance_tagger(self, importance_tagger: Any) -> None:
        """Have a tagger say how important each token is.

        Args:
            importance_tagger: a checkpoint (folder or Hub id; it is loaded to the model's device, in its number
                format), a token classification model, or an `ImportanceTagger`.

        Raises:
            ValueError: If it is none of these, or the model does not pool by importance.
        """
        pooling = getattr(self.model.config, "pooling", None)
        if pooling != "importance":
            raise ValueError(
                f"`importance_tagger` is for models that pool by importance (pooling='importance' in the config); "
                f"{type(self.model).__name__} {'does not pool' if pooling is None else f'has pooling={pooling!r}'}."
            )
        self.importance_tagger = load_importance_tagger(
            importance_tagger, self.processor, device=self.device, dtype=self.model.dtype
        )

    def __call__(  # type: ignore[override]
        self,
        inputs: Any = None,
        *,
        text: Any = None,
        sentences: Any = None,
        turns: Any = None,
        documents: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Summarize one document or many.

        Args:
            inputs: a text; the turns of one dialogue (a list of `{"role": …, "content": …}`); a dictionary with one of
                "text", "sentences", "turns", "documents", and perhaps "query", "phrases" and "page_starts", which
                `load_documents` gives of a PDF (other entries are not read); or many of these as a list, a dataset,
                or a generator.
            text: instead of `inputs`: one text, or a list of them.
            sentences: instead of `inputs`: one document as a list of its sentences, or a list of such documents.
            turns: instead of `inputs`: the turns of one dialogue, or a list of such lists.
            documents: instead of `inputs`: the articles to summarize together, or a list of such lists.
            **kwargs: `batch_size` (documents at once, 1; "auto": those of like length, as many as pays),
                `num_workers` (not with "auto"); `length` ("line", "short" or "long");
                `truncation` (by default, what says the most of a document that is too long is read; with True it is
                cut, with False it is an error), `max_source_length` (in tokens; what the checkpoint says, else as many
                as the model can take),
                `query` (a question, or what the summary is to be about: one for all documents, or a list with one for
                each; one document is summarized for each of a list),
                `phrases` (a list of (phrase, value), (start, end, value) or phrases alone, to highlight in the place
                of those that the processor finds; [] for none), `faithful` and `common_words` (what the checkpoint
                says, else False and the commonest English words); False by default `return_truncation`,
                `return_tensors` (token ids instead of text), `return_phrases`, `return_copied`, `return_sources`,
                `return_encoded_rows` and `clean_up_tokenization_spaces`; and arguments of `generate`, such as
                `num_beams`, `max_length`, `num_return_sequences`.

        Returns:
            For one document a list of `{"summary_text": …}`, one for each returned sequence. For a list of documents a
            list of such dictionaries, or of such lists if `num_return_sequences` is above 1. For a dataset or a
            generator an iterator over such lists. Each dictionary also has

            - with `return_truncation` `num_truncated_tokens`, and `num_truncated_sentences` where the processor tells
              sentences apart; `num_omitted_tokens` if it was condensed; of a model with phrases `num_missing_phrases`,
              `num_truncated_phrases`, `num_long_phrases` and whether it is `without_phrases` (see the processor);
            - with `return_tensors` `summary_token_ids` instead of `summary_text`;
            - with `return_phrases` `phrases`, which were highlighted: {"text", "value", "spans" (of characters),
              "positions" (of tokens)};
            - with `return_copied` `copied`: the words of the summary that were rather copied than generated, {"text",
              "start", "end", "share" (of copying in the word's probability), "source" ([start, end] in the source, or
              None if it was put together from several places)};
            - with `return_sources`, for any model, `sources`: for each sentence of the summary {"text", "start",
              "end", "sources"}, and there at most three sentences of the document, the best first, {"text", "start",
              "end", "weight", and "page" where the document says "page_starts"}; weights add up to 1;
            - with `return_encoded_rows`, for models that read only the rows that they select (Coarse-to-Fine LSTM with
              attention="hard"), `num_encoded_rows`, how many they read, and `num_rows`, of how many.

            Characters of the source are those of `running_text`.

        Raises:
            ValueError: If the input is not one of the above, if a query is empty, too long, or one too many, if a
                document is too long and `truncation=False`, if
                the summary may become longer than the model's decoder can go, or if `faithful` is wanted and the
                tokenizer does not show which of its tokens begin words.
        """
        named = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        return self._call(inputs, named, **kwargs)

    def _sanitize_parameters(  # type: ignore[override]
        self, **kwargs: Any
    ) -> tuple[Arguments, Arguments, Arguments]:
        of_documents, of_generation, of_results = super()._sanitize_parameters(**kwargs)
        words = of_generation.get("common_words")
        if words is not None and not isinstance(words, str):
            of_generation["common_words"] = tuple(words)  # which each batch reads
        if "length" in of_results:
            settings = self._length_settings(of_results["length"])
            of_generation = {**settings, **of_generation}
            is_page = of_results["length"] == "long"
            own = of_documents.get("paragraphs", self._task_params().get("paragraphs", 1))
            of_documents["paragraphs"] = own if is_page else 1
        return of_documents, of_generation, of_results

    def preprocess(  # type: ignore[override]
        self,
        input_: Any,
        truncation: bool | None = None,
        max_source_length: int | None = None,
        paragraphs: int = 1,
        query: Any = None,
        phrases: Any = None,
        return_phrases: bool = False,
        return_copied: bool = False,
        return_sources: bool = False,
        return_encoded_rows: bool = False,
    ) -> dict[str, Example]:
        """Tokenize one document."""
        name, value = structure_of(input_, self.structures)
        limit = self._source_limit(max_source_length)
        options = self._options(input_, phrases, return_phrases, return_copied)
        condenses = truncation is None and not options and not return_encoded_rows
        query = self._query(input_, query, condenses)
        question = query if self._task_params().get("reads_query") else None
        asked = value if question is None else with_query(name, value, question)
        if return_sources and self._knows_offsets() and question is None:
            options["return_offsets_mapping"] = True
        if hasattr(self.processor, "extra_inputs"):
            # Rows may have a limit where tokens have none.
            limited = limit is not None or getattr(self.processor, "num_rows", None) is not None
            cut = truncation is not False and limited
            example = self._process(name, asked, limit if cut else None, truncation=cut, **options)
        else:
            example = self._encoded(name, asked, None if truncation is False else limit)
        if not len(example):
            raise ValueError(f"`{name}` is empty, without a token of the tokenizer's: there is nothing to summarize.")
        if limit is not None and len(example) > limit:
            is_set = max_source_length or self._task_params().get("max_source_length")
            by = "`max_source_length`" if is_set else type(self.model).__name__
            instead = "have the best of it read" if not (options or return_encoded_rows) else "have it cut at the end"
            raise ValueError(
                f"The input is {len(example)} tokens long, more than the {limit} that {by} allows. Shorten it, or "
                f"leave out truncation=False to {instead}."
            )
        wanted = None
        if query is not None and (question is None or (limit is not None and tokens_of(example) > limit)):
            wanted = self._wanted(query, as_text(name, value, replace=True))
        if wanted is not None and question is None:  # what is read is all that the model knows of it
            least, most = ASKED
            limit = min(most if limit is None else limit, most, max(least, tokens_of(example) // 2))
        whole = example
        if condenses and limit is not None and tokens_of(example) > limit:
            example = self._condensed(name, value, example, limit, wanted, question)
        elif (
            condenses and query is None and name == "text" and self._task_params().get("long_documents") == "condense"
        ):
            example = self._without_lists(value, example, limit)
        if condenses and paragraphs > 1:
            parts = [example] if query else self._parts(name, value, tokens_of(whole), paragraphs, limit)
            example.notes["parts"] = parts
            if "num_omitted_tokens" in example.counts:
                read = sum(map(len, parts))
                example.counts["num_omitted_tokens"] = max(0, tokens_of(whole) - read)
        if is_uncased(self.tokenizer):
            example.notes["document"] = as_text(name, asked, replace=True)
        if return_sources:
            self._note_sentences(example, name, value)
            if isinstance(input_, Mapping):
                starts = input_.get("page_starts") or ()
                example.notes["sentences"].page_starts = sorted(starts, key=lambda page: page["start"])
            if not return_copied:
                example.notes.pop("offset_mapping", None)
        if return_phrases:  # a document in which there was nothing to look for has no report
            example.notes["phrases"] = example.notes.get("phrases") or []
        if return_encoded_rows:
            if getattr(self.model.config, "attention", None) != "hard":
                selecting = 'that read only the rows that they select (Coarse-to-Fine LSTM with attention="hard")'
                raise self._only("`return_encoded_rows` is", selecting)
            example.settings["return_dict_in_generate"] = True
            example.notes["num_rows"] = len({row for row in example.inputs.get("row_ids", [0]) if row >= 0})
        return {"examples": example}

    def _encoded(self, name: str, value: Any, limit: int | None) -> Example:
        if hasattr(self.processor, "extra_inputs"):
            return self._process(name, value, limit)
        example = self._tokenize(self._prefix() + as_text(name, value), limit)
        example.source = (name, value, limit)
        return example

    def _query(self, input_: Any, query: Any, condenses: bool) -> str | None:
        """What is asked of one document."""
        own = input_.get("query") if isinstance(input_, Mapping) else None
        query = query if own is None else own
        if query is None:
            return None
        if not isinstance(query, str) or not query.strip():
            raise ValueError(f"`query` must be a question, or words that say what is wanted; got {query!r:.80}.")
        if not condenses:
            others = "`truncation`, `phrases`, `return_phrases`, `return_copied` and `return_encoded_rows`"
            raise ValueError(f"`query` chooses what is read of a document, so it does not go with {others}.")
        return query.strip()

    def _wanted(self, query: str, text: str) -> str | None:
        """By what sentences are chosen; None if the query could only mislead."""
        if is_about(query, text):
            return query
        self._say_once(
            "query",
            f"A document has none of the words that matter in the query {query!r:.80}: what is read of it is what "
            "would be read without one. Ask in the document's language, and in its words.",
            long_documents_logger,
        )
        return None

    def _condensed(
        self, name: str, value: Any, cut: Example, limit: int, wanted: str | None, question: str | None
    ) -> Example:
        """Read what says the most of a document that is too long, or what is wanted; after a question."""
        tokens = tokens_of(cut)
        if wanted is None:
            self._say_once(
                "condensed",
                f"A document of {tokens} tokens is longer than the {limit} that {type(self.model).__name__} takes: "
                "its beginning is read, and the sentences that say the most of it. truncation=True cuts its end off.",
            )

        def encoded(read: Any) -> Example:
            return self._encoded(name, read if question is None else with_query(name, read, question), limit)

        frame = self.count_tokens("" if question is None else with_query("text", "", question))
        if question is not None and 2 * frame > limit:
            raise ValueError(f"`query` takes {frame} of the {limit} tokens that can be read; ask a shorter one.")
        how = (limit - frame, self._sizes, self.processor, wanted)
        whole = encoded(shorten(name, value, *how, limit=limit, length=lambda read: tokens_of(encoded(read))))
        whole.counts["num_omitted_tokens"] = tokens - tokens_of(whole)
        return whole

    def _without_lists(self, text: str, whole: Example, limit: int | None) -> Example:
        """Read the sentences of a text, and no headings or lists, as of longer ones."""
        read = only_sentences(text, self._sizes, self.processor)
        if read == text:
            return whole
        example = self._encoded("text", read, limit)
        example.counts["num_omitted_tokens"] = tokens_of(whole) - tokens_of(example)
        return example

    def _sizes(self, texts: list[str]) -> list[int]:
        return sizes_of(self.tokenizer, texts)

    def _parts(self, name: str, value: Any, tokens: int, paragraphs: int, limit: int | None) -> list[Example]:
        """What each paragraph of a page is made of, in their order."""
        number = min(paragraphs, -(-tokens // PART))
        room = number * min(PART, limit or PART)
        worth = worth_in(value, self.processor) if name == "text" and number > 1 else None
        if tokens > room:
            value = condense(name, value, room, self._sizes, self.processor)
        elif name == "text":
            value = only_sentences(value, self._sizes, self.processor)
        parts = []
        for read in parts_of(name, value, number, self._sizes, self.processor, worth):
            part = self._encoded(name, read, limit)
            if limit is not None and tokens_of(part) > limit:  # one article or turn, or a text without stops
                part = self._condensed(name, read, part, limit, None, None)
            parts.append(part)
        return [part for part in parts if len(part) > 0]

    def _forward(  # type: ignore[override]
        self, model_inputs: dict[str, Any], **generate_kwargs: Any
    ) -> dict[str, Any]:
        examples = model_inputs["examples"]
        examples = examples if isinstance(examples, list) else [examples]
        if "parts" not in examples[0].notes:
            return super()._forward({"examples": examples}, **generate_kwargs)
        pages = [example.notes["parts"] for example in examples]
        parts = [part for page in pages for part in page]
        of_one = [name for name in ONE_AT_A_TIME if generate_kwargs.get(name) is not None]
        if of_one and len(parts) > 1:
            raise ValueError(
                f"`{of_one[0]}` is for one text at a time, and this page is written in {len(parts)} parts; leave it "
                "out, or have the page written in one go with truncation=True."
            )
        settings = self._of_paragraphs(generate_kwargs, pages)
        written = super()._forward({"examples": parts}, **settings)["output_ids"]  # (parts, sequences, target)
        begin = [int(written[0, 0, 0]), self.tokenizer.convert_tokens_to_ids("[long]")]
        rows = [
            [*begin, *page_of(paragraphs, self.tokenizer, form, self.processor), self.tokenizer.eos_token_id]
            for page, form in zip(written.split([len(page) for page in pages]), map(_form, examples), strict=True)
            for paragraphs in page.transpose(0, 1).tolist()
        ]
        padded = [torch.tensor(row) for row in rows]
        ids = torch.nn.utils.rnn.pad_sequence(padded, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        ids = ids.reshape(len(examples), -1, ids.shape[-1])  # (batch, sequences, target)
        return {"output_ids": ids, "examples": examples, **self._looked_up(examples, self._pad(examples), ids)}

    def _options(self, input_: Any, phrases: Any, return_phrases: bool, return_copied: bool) -> dict[str, Any]:
        """What the processor is told, and asked for, beside the document."""
        knows_phrases = highlights(self.processor)
        if (phrases is not None or return_phrases) and not knows_phrases:
            knowing = "with a processor that knows phrases (Highlight-Transformer)"
            raise self._only("`phrases` and `return_phrases` are", knowing)
        options: dict[str, Any] = {}
        if knows_phrases:
            own = input_.get("phrases") if isinstance(input_, Mapping) else None
            phrases = phrases if own is None else own
            options |= {} if phrases is None else {"phrases": phrases}
            if phrases is None and self.processor.key_phrases is None and self.model.config.highlight_heads:
                self._say_once(
                    "phrases",
                    "Nothing is highlighted: the processor finds no key phrases of its own. Fit them with "
                    "`hier-models fit-phrases`, or give `phrases` (an empty list for none).",
                )
            options |= {"return_phrases": True} if return_phrases else {}
        if return_copied:
            if not getattr(self.model.config, "use_copy", False):
                raise self._only("`return_copied` is", "that copy (use_copy in the config)")
            options["return_offsets_mapping"] = True
        return options

    def _knows_offsets(self) -> bool:
        """Whether the model's processor can tell where its tokens stand in the running text."""
        return hasattr(self.processor, "running_text") and bool(self.tokenizer.is_fast)

    def _note_sentences(self, example: Example, name: str, value: Any) -> None:
        """Note the sentences of a document that are read."""
        text = self.running_text({name: value})
        offsets = example.notes.get("offset_mapping")
        is_condensed = "num_omitted_tokens" in example.counts
        is_cut = example.counts["num_truncated_tokens"] and not is_condensed
        if is_cut and not hasattr(self.processor, "extra_inputs"):
            offsets = plain_offsets(self.tokenizer, self._prefix(), text, len(example))
        example.notes["sentences"] = document_sentences(name, value, text, self.processor, offsets)

    def _looked_up(
        self, examples: list[Example], batch: Tensors, ids: torch.Tensor, output: Any = None, config: Any = None
    ) -> Tensors:
        """How much of each token is copied from where, or which sentences it rests on, and how many rows were read."""
        found: Tensors = {}
        notes, model = examples[0].notes, self.model
        places = None
        if "sentences" in notes:
            places = self._token_sentences([example.notes["sentences"] for example in examples], batch)
        if "offset_mapping" in notes:
            found |= copy_shares(model, batch, ids, places)
        elif places is not None and getattr(model.config, "use_copy", False):
            found["source_shares"] = copy_shares(model, batch, ids, places)["source_shares"]
        elif places is not None and getattr(model.config, "hierarchical_layers", None):
            found["source_shares"] = attended_sentences(model, batch, ids, places)
        if "num_rows" in notes:
            found["num_encoded_rows"] = output["encoded_rows"]
        return found

    def _token_sentences(self, documents: list[Any], batch: Tensors) -> torch.Tensor | None:
        """The sentence of each source token, (batch, source); None if it is not known, or there are no sentences."""
        length = batch["input_ids"].shape[1]
        rows = [document.tokens + [-1] * (length - len(document.tokens)) for document in documents]
        return torch.tensor(rows) if self._knows_offsets() and any(document.tokens for document in documents) else None

    def _pad(self, examples: list[Example]) -> Tensors:
        # Here, and not where documents are tokenized, which may be in another process that must not use the GPU.
        if self.importance_tagger is not None:
            for name, limit in {(example.source[0], example.source[2]) for example in examples}:
                chosen = [example for example in examples if (example.source[0], example.source[2]) == (name, limit)]
                source = {name: [example.source[1] for example in chosen]}
                spans = self.importance_tagger.tag_sources(self.processor, limit, source)
                weighed = self.processor(
                    **source, importance=spans, truncation=limit is not None, max_length=limit, return_truncation=True
                )
                for example, weights in zip(chosen, weighed["token_importance"], strict=True):
                    example.inputs["token_importance"] = weights
        return super()._pad(examples)

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: dict[str, Any],
        return_truncation: bool = False,
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
        length: str | None = None,
    ) -> list[dict[str, Any]]:
        """Turn generated ids into summaries; those of models that know lengths end with a whole sentence."""
        records: list[dict[str, Any]] = []
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        example = example_of(model_outputs)
        document = example.notes.get("document")
        for number, ids in enumerate(model_outputs["output_ids"][0]):  # (target,)
            decoded = self.tokenizer.decode(ids, **options)
            text = _form(example)(decoded)
            record: dict[str, Any] = {"summary_token_ids": ids} if return_tensors else {"summary_text": text}
            if return_truncation:
                record |= example.counts
            if "num_rows" in example.notes:
                encoded_rows = int(model_outputs["num_encoded_rows"])
                record |= {"num_encoded_rows": encoded_rows, "num_rows": example.notes["num_rows"]}
            if "phrases" in example.notes:
                record["phrases"] = example.notes["phrases"]
            written = ids[1:].tolist()  # the first id is the decoder's start token
            if "copy_shares" in model_outputs:
                shares, places = (model_outputs[name][0, number].tolist() for name in ("copy_shares", "copy_places"))
                offsets = example.notes["offset_mapping"]
                copied = copied_words(self.tokenizer, written, decoded, shares, places, offsets, options)
                record["copied"] = copied if document is None else moved_places(copied, decoded, text)
            if "sentences" in example.notes:
                rests_on = model_outputs["source_shares"][0, number] if "source_shares" in model_outputs else None
                record["sources"] = sources_of_tokens(
                    *(self.tokenizer, written, text, decoded, example.notes["sentences"], rests_on, options),
                    self.processor,
                )
            if self._knows_lengths() and not return_tensors:
                _keep(record, self._whole_sentences(text, length == "line"))
            records.append(record)
        return records

    def _whole_sentences(self, text: str, one: bool) -> int:
        """Where the last whole sentence of a summary ends, or the first, if that is all there is or is wanted."""
        spans = summary_spans(text, self.processor)
        unfinished = len(spans) > 1 and not text[: spans[-1][1]].rstrip(CLOSING).endswith(ENDS)
        kept = spans[:1] if one else spans[:-1] if unfinished else spans
        return kept[-1][1] if kept else len(text)

    def running_text(self, input_: Any) -> str:
        """Give a document as the text whose characters `sources` and `copied` count.

        Args:
            input_: a text, a dictionary with one of "text", "sentences", "turns", "documents", or a chat.

        Returns:
            The processor's `running_text` if it has one, else the plain text that the model reads.

        Raises:
            ValueError: If the input is something else.
        """
        name, value = structure_of(input_, self.structures)
        if hasattr(self.processor, "running_text"):
            return str(self.processor.running_text(**{name: value}))
        return as_text(name, value)

    def find_sources(self, input_: Any, summary: str) -> list[dict[str, Any]]:
        """Find on which sentences of a document the sentences of a given summary rest.

        Args:
            input_: the document, as the call takes it.
            summary: its summary, whoever wrote it.

        Returns:
            What the call gives as `sources`.

        Raises:
            ValueError: If the document is none.
        """
        document = {**input_, "query": None} if isinstance(input_, Mapping) else input_
        settings = {**self._preprocess_params, "query": None, "paragraphs": 1, "return_sources": True}
        example = self.preprocess(document, **settings)["examples"]
        longest = self._positions("decoder")
        if not summary.strip():
            return []
        if hasattr(self.processor, "extra_inputs"):
            labels = self.processor(text_target=summary)["labels"]
        else:
            labels = self.tokenizer(text_target=summary, verbose=False)["input_ids"]
        labels = labels if longest is None else labels[: longest - 1]
        start = getattr(self.model.config, "decoder_start_token_id", None) or 0
        ids = torch.tensor([[[start, *labels]]])  # (1, 1, target + 1)
        with evaluating(self.model):
            found = self._looked_up([example], self._pad([example]), ids)
        shares = found["source_shares"][0, 0] if "source_shares" in found else None
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        written = (labels, summary, self.tokenizer.decode(labels, **options))
        document = example.notes["sentences"]
        return sources_of_tokens(self.tokenizer, *written, document, shares, options, self.processor)

    def count_tokens(self, text: str) -> int:
        """Count the tokens that the model would see of a text.

        Args:
            text: a document.

        Returns:
            Their number, with what frames the text.
        """
        return len(self._encoded("text", text, None))

    def limits(self, **kwargs: Any) -> tuple[int | None, int]:
        """Say how long documents and summaries can be.

        Args:
            **kwargs: arguments of the call.

        Returns:
            How many tokens a document may have before it is cut, None if there is no limit; and how many new tokens a
            summary may get.

        Raises:
            ValueError: If a length is more than the model can do.
        """
        preprocess, generate_kwargs, _ = self._sanitize_parameters(**kwargs)
        source = {**self._preprocess_params, **preprocess}.get("max_source_length")
        config, _ = self._generation_config({**self._forward_params, **generate_kwargs}, [Example({"input_ids": []})])
        longest = total_length(config, "max", 1)
        return self._source_limit(source), (longest or DEFAULT_MAX_NEW_TOKENS + 1) - 1

    def _task_names(self, languages: Languages) -> list[str]:
        return ["summarization"]

    def _source_limit(self, max_source_length: int | None) -> int | None:
        own = self._task_params().get("max_source_length")
        return super()._source_limit(own if max_source_length is None else max_source_length)

    def _warn(self, examples: list[Example], generation_config: GenerationConfig) -> None:
        """Say once what the user may not expect."""
        for example in examples:
            tokens = example.counts["num_truncated_tokens"]
            if tokens:
                self._say_once(
                    "truncation",
                    f"The input was cut: {tokens} of its {tokens + len(example)} tokens are more than the model takes."
                    f" return_truncation=True returns this number for each document.",
                )
        # Like Transformers 4. `generate` itself warns when the two lengths contradict each other.
        min_length = total_length(generation_config, "min", 1)
        shortest = min(len(example) for example in examples)
        if min_length is not None and min_length > shortest:
            self._say_once(
                "min_length",
                f"`min_length` is {min_length}, but the input has only {shortest} tokens, so the summary gets longer "
                f"than the text. Consider a `min_length` and `max_length` below {shortest}.",
            )


def _form(example: Example) -> Callable[[str], str]:
    """How the text that a tokenizer decodes is written in the end."""
    document = example.notes.get("document")
    return str if document is None else partial(restore_written_form, document=document)


def _keep(record: dict[str, Any], end: int) -> None:
    """Cut a summary, and what is said of it, at a character."""
    record["summary_text"] = record["summary_text"][:end]
    for name in ("copied", "sources"):
        if name in record:
            record[name] = [part for part in record[name] if part["end"] <= end]


__all__ = ["DEFAULT_MAX_NEW_TOKENS", "SummarizationPipeline"]
