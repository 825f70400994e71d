"""What mini_highlights.yaml reads: mini as BART with a copy head, and key phrases of the summaries and of the titles.

hier-models train examples/experiments/mini_plain.yaml
python examples/experiments/mini_highlights.py

With --tagger, a checkpoint of mini_phrases_tagger.yaml, also the phrases that it finds, which takes half an hour.
"""

import argparse
import json
import shutil
from pathlib import Path

from prepare import phrases_there, with_phrases_of_summaries
from tqdm import tqdm

from hier_models.data.stopwords import load_stopwords
from hier_models.models.phrase_ranking import ImportantPhrases, TitlePhrases
from hier_models.training.evaluation import write_json_lines


PLAIN = Path("runs/experiments/mini_plain")
PAIRS = Path("experiments/mini/pairs")


def of_title(finder: TitlePhrases, row: dict[str, str]) -> list[tuple[str, float]]:
    """The phrases of a title that its document has."""
    found = finder.find(f"{row['title']}\n\n{row['document']}") if row["title"] else []
    return phrases_there(found, [row["document"]])


def main() -> None:
    """Write runs/experiments/mini_bart and experiments/mini_phrases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tagger", metavar="CHECKPOINT", help="what finds tagger_phrases")
    tagger = parser.parse_args().tagger
    base = Path("runs/experiments/mini_bart")
    base.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        # Another file in its place: a training that began with the old one has its weights mapped to it, and would
        # lose what it has learned if that were written over.
        shutil.copy(PLAIN / name, base / f"{name}.unfinished")
        (base / f"{name}.unfinished").replace(base / name)
    config = json.loads((PLAIN / "config.json").read_text(encoding="utf-8"))
    # HAT-BART without hierarchical layers is BART.
    config |= {"model_type": "bart", "architectures": ["BartForConditionalGeneration"]}
    (base / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")

    files = {"train": "last", "validation": "compared_validation", "test": "compared_test"}
    titles, parts = TitlePhrases(load_stopwords("en"), lengths=(1, 2, 3)), {}
    for part, name in files.items():
        with (PAIRS / f"{name}.jsonl").open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in tqdm(lines, desc=part, unit=" documents")]
        parts[part] = [{**row, "documents": [row["document"]], "title_phrases": of_title(titles, row)} for row in rows]
    finder = tagger and ImportantPhrases(tagger, load_stopwords("en"))
    for part, rows in with_phrases_of_summaries(parts).items():
        for row in tqdm(rows, desc=f"tagging {part}", unit=" documents") if finder else []:
            row["tagger_phrases"] = [(phrase.text, phrase.value) for phrase in finder.find(row["document"])]
        kept = ({key: value for key, value in row.items() if key != "documents"} for row in rows)
        write_json_lines(Path("experiments/mini_phrases") / f"{part}.jsonl", kept)


if __name__ == "__main__":
    main()
