"""One subword vocabulary for both languages of a parallel corpus."""

from collections.abc import Iterable

from transformers import PreTrainedTokenizerFast

from .byte_level import fit
from .special_tokens import SPECIAL_TOKENS


def train_joint_bpe(
    texts: Iterable[str], num_codes: int = 40_000, *, model_max_length: int = 512, show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on texts of both languages, as an ordinary fast tokenizer of Transformers.

    It differs from the paper's Moses and fastBPE: nothing is normalized, escaped or split off beforehand, words begin
    with their space, and the alphabet is the 256 bytes instead of the characters seen in training. So every text comes
    back from its ids as it was, no character is unknown, and a translation needs no detokenizer; BLEU is measured on
    the texts themselves. As in the paper the codes (merges) are learned on both languages together.

    Args:
        texts: texts of both languages, running text rather than words.
        num_codes: merges to learn; fewer where the texts have no more. The vocabulary has 256 bytes and 4 special
            tokens besides.
        model_max_length: longest input in tokens of the model that it is for.
        show_progress: whether to show progress bars.

    Returns:
        The tokenizer, with `<s>`, `<pad>`, `</s>` and `<unk>` as the ids 0 to 3, as BART has them; it reads `<s> text
        </s>`, from which models without a processor learn where to end.

    Raises:
        ValueError: If `num_codes` is negative.

    Source: HAT-BART, section 4.2 ("byte-pair encoding with 40000 bpe codes", "a joined dictionary").
    """
    if num_codes < 0:
        raise ValueError(f"num_codes must be 0 or more, got {num_codes}")
    return fit(texts, len(SPECIAL_TOKENS) + 256 + num_codes, SPECIAL_TOKENS, model_max_length, show_progress)
