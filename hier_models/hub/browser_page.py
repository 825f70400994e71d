"""A page that summarizes in the browser: the weights in int8, onnxruntime-web, and plain JavaScript."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from ..inspection.pages import page
from ..models.sentence_splitting import abbreviations
from ..models.summary_lengths import length_ids
from ..pipelines.common_words_hier import COMMON_WORDS
from ..pipelines.document_pipeline_hier import task_params
from ..pipelines.long_documents_hier import LEAST_REPEATED
from ..pipelines.salience_hier import CUES, WEIGHTS
from ..pipelines.summarization_hier import PART, SummarizationPipeline
from ..pipelines.summary_rules_hier import MOST_OF_SHORT, NEW_TOKENS
from ..pipelines.written_form_hier import COMMON, NAMES, is_uncased
from .onnx_export import export_onnx
from .onnx_running import DECODER, ENCODER, SETTINGS, SHARED


VERSION = 3  # that of page/summarizer.js
SCRIPTS = Path(__file__).parent / "page"
# Files of onnxruntime-web, and what they are called beside the page: all servers know the type of .js.
RUNTIME = {
    "ort.wasm.bundle.min.mjs": "onnxruntime-web.js",
    "ort-wasm-simd-threaded.wasm": "onnxruntime-web.wasm",
}


def export_page(
    model: Any, processor: Any, folder: str | Path, *, name: str, onnxruntime_web: str | Path | None = None
) -> Path:
    """Write a page that summarizes in the browser, for any server of files; nothing else is loaded from anywhere.

    It decodes greedily, one text at a time, with the settings of the checkpoint: length, `faithful`, the written form
    given back from the document, and of a document that is too long what says the most. Where sentences end is judged
    by the browser (`Intl.Segmenter`) and the abbreviations of punkt, not by punkt itself.

    Args:
        model: a HAT-BART that generates.
        processor: its processor, with an uncased WordPiece tokenizer such as BERT's.
        folder: where to write; made if it is not there. Files of the same names are replaced.
        name: what the page calls the model.
        onnxruntime_web: the folder of the npm package `onnxruntime-web`; by default that in `node_modules` here or
            in a folder above.

    Returns:
        The folder, which `OnnxSummarizer` reads too.

    Raises:
        ValueError: If the model or its tokenizer are of another kind.
        FileNotFoundError: If onnxruntime-web is not there.
        ImportError: If onnx or onnxscript is missing.
    """
    settings = _settings(model, processor)
    runtime = _runtime(onnxruntime_web)
    folder = export_onnx(model, processor, folder, int8=True)
    for source, target in RUNTIME.items():
        shutil.copyfile(runtime / "dist" / source, folder / target)
    for script in SCRIPTS.glob("*.js"):
        shutil.copyfile(script, folder / script.name)
    loaded = (SETTINGS, "tokenizer.json", SHARED, ENCODER, DECODER)
    files = {file: (folder / file).read_bytes() for file in loaded}
    settings["files"] = {
        file: {"bytes": len(data), "key": hashlib.sha256(data).hexdigest()[:16]} for file, data in files.items()
    }
    (folder / "page.json").write_text(json.dumps(settings, ensure_ascii=False) + "\n", encoding="utf-8")
    lengths = settings["lengths"]
    first = model.generation_config.forced_bos_token_id
    default = next((length for length, own in lengths.items() if own["id"] == first), next(iter(lengths), None))
    html = page("hub/page/index.html", "Summarize a text", model=name, lengths=list(lengths), default_length=default)
    (folder / "index.html").write_text(html, encoding="utf-8")
    return folder


def _settings(model: Any, processor: Any) -> dict[str, Any]:
    """What the scripts are told, beside the settings of `generate`."""
    tokenizer: Any = getattr(processor, "tokenizer", None)
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    kinds = _kinds(json.loads(backend.to_str())) if backend else []
    config = model.config
    read = ["WordPiece", "BertNormalizer", "BertPreTokenizer"]
    if config.model_type != "hat_bart" or config.num_segments or kinds != read:
        raise ValueError(
            "a page is for a HAT-BART without segments whose tokenizer is a WordPiece such as BERT's, as that of "
            f"mini; got {type(model).__name__} with {' and '.join(kinds)}. `--onnx` is for the others."
        )
    if not is_uncased(tokenizer):
        raise ValueError("a page is for an uncased tokenizer, as that of mini; this one keeps capitals.")
    summarize = SummarizationPipeline(model=model, processor=processor)
    own = task_params(config, "summarization")
    asked = model.generation_config
    if lost := [name for name in own if hasattr(asked, name) and getattr(asked, name) is None]:
        raise ValueError(
            "a page has the settings of generation_config, and task_specific_params sets "
            f"{', '.join(lost)}, which that leaves open: set it there, and save the model anew."
        )
    lengths, own_words = length_ids(tokenizer), own.get("common_words")
    return {
        "version": VERSION,
        "heads": config.decoder_attention_heads,
        "head_size": config.d_model // config.decoder_attention_heads,
        "max_source_length": summarize.limits()[0],
        "mask_token_id": tokenizer.mask_token_id,
        "lengths": {
            length: {"id": id_, "least": NEW_TOKENS[length][0], "most": summarize.limits(length=length)[1]}
            for length, id_ in lengths.items()
        },
        "most_of_short": MOST_OF_SHORT,
        "paragraphs": own.get("paragraphs", 1) if lengths else 1,
        "part": PART,
        "least_repeated": LEAST_REPEATED,
        "only_sentences": own.get("long_documents") == "condense",
        "faithful": bool(own.get("faithful")),
        "salience": {
            "weights": WEIGHTS.tolist(),
            "cues": CUES,
            "common": sorted(COMMON_WORDS) if own_words else None,
        },
        # As the tokenizer has them.
        "common_words": sorted({backend.normalizer.normalize_str(word) for word in own_words or COMMON_WORDS}),
        "in_english": not own_words,
        "abbreviations": sorted(abbreviations(processor.language)),
        "sentence_beginnings": sorted(COMMON),
        "names": NAMES,
    }


def _kinds(tokenizer: dict[str, Any]) -> list[str]:
    """What a tokenizer is made of, but for signs that are read as others, stand alone, or are passed over."""
    normalizer, words = tokenizer["normalizer"] or {}, tokenizer["pre_tokenizer"] or {}
    parts = [tokenizer["model"], *normalizer.get("normalizers", [normalizer]), *words.get("pretokenizers", [words])]

    def is_of_signs(part: dict[str, Any]) -> bool:
        is_read = part.get("type") == "Replace" and "String" in part["pattern"]
        is_parted = part.get("type") == "Split" and part["behavior"] in ("Isolated", "Removed") and not part["invert"]
        return is_read or (is_parted and "Regex" in part["pattern"])

    return [str(part.get("type")) for part in parts if not is_of_signs(part)]


def _runtime(folder: str | Path | None) -> Path:
    """Find the npm package onnxruntime-web."""
    here = Path.cwd()
    found = [Path(folder)] if folder else [above / "node_modules/onnxruntime-web" for above in (here, *here.parents)]
    for place in found:
        missing = [file for file in RUNTIME if not (place / "dist" / file).is_file()]
        if not missing:
            return place
        if folder or place.is_dir():
            raise FileNotFoundError(
                f"{place} has no {' and no '.join(f'dist/{file}' for file in missing)}: give the folder of the npm "
                "package onnxruntime-web, version 1.30 or another that has them."
            )
    raise FileNotFoundError(
        "onnxruntime-web is missing, which runs the model in browsers: `npm install onnxruntime-web` here, or name "
        "the folder of the package with --onnxruntime-web."
    )
