"""One character in the place of every digit, as in models that know no numbers."""

import re


def check_digits(digits: str) -> None:
    """Refuse what cannot stand for a digit.

    Args:
        digits: What every digit becomes.

    Raises:
        ValueError: If it is not one character, or a letter, a space or a control character.
    """
    if not isinstance(digits, str) or len(digits) != 1 or digits.isalpha() or digits.isspace() or digits < " ":
        raise ValueError(f"digits must be a single character that is no letter or space, such as '#', got {digits!r}")


def replace_digits(text: str, digits: str) -> str:
    """Put one character in the place of every digit, as the tokenizer does.

    Args:
        text: Any text.
        digits: What every digit becomes.

    Returns:
        A text of the same length.
    """
    return re.sub(r"\d", digits, text)
