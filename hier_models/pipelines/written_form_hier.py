"""The written form of a summary, given back from its document: capitals, accents and spaces.

An uncased tokenizer such as BERT's takes them away: what it decodes reads "( born november 9, 1988 ) is a co -
founder". Most of a summary's words stand in its document, where one can see how they are written.
"""

import calendar
import functools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .common_words_hier import COMMON_WORDS


TOKEN = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u036f])*|[^\w\s]|_")  # an accent may stand behind its letter
OPENING, CLOSING = "([{“‘«¿¡$£€#@", ")]}”’»%,.;:!?…"  # noqa: RUF001
JOINING = "-‐/'’_"  # noqa: RUF001
ENDS = frozenset(".!?。！？")
HEADING = 0.1  # a word of a heading, which may have capitals for being one, counts less than one of a sentence
LONGEST_HEADING = 12  # words


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that begin sentences and are no names.
COMMON = COMMON_WORDS | _words(
    """afterwards eight five four importantly indeed interestingly meanwhile my nevertheless nine seven six
surprisingly ten third three two"""
)
_PLACES = _words(
    """africa african america american antarctica arab argentina asia asian atlantic australia australian austria
austrian bangladesh belgian belgium berlin brazil brazilian britain british bulgaria california canada canadian chicago
chile china chinese colombia croatia cuba czech danish denmark dutch egypt england english europe european finland
finnish florida france french german germany greece greek hungarian hungary iceland india indian indonesia iran
iraq ireland irish israel israeli italian italy jamaica japan japanese kenya korea korean latin london malaysia
mexican mexico minnesota mongolia morocco moscow nepal netherlands nigeria norway norwegian ohio ontario oregon
pacific pakistan paris pennsylvania persian peru philippines poland polish portugal portuguese roman romania rome
russia russian scotland scottish serbia singapore slovakia slovenia soviet spain spanish sweden swedish
swiss switzerland sydney taiwan texas thailand tokyo toronto turkish ukraine ukrainian vietnam vietnamese virginia
wales washington welsh york zealand"""
)
_RELIGIONS = _words("buddhist catholic christian hindu islam islamic jewish muslim protestant")
# "march" and "may" are words too, and are left to the document.
_DATES = [name for name in (*calendar.month_name, *calendar.day_name) if name.lower() not in ("", "march", "may")]
NAMES = {name.lower(): name.capitalize() for name in (*_PLACES, *_RELIGIONS, *_DATES)} | {"i": "I"}


def is_uncased(tokenizer: Any) -> bool:
    """Whether a tokenizer takes capitals away."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return normalizer is not None and normalizer.normalize_str("Aa") == "aa"


_ALIKE = str.maketrans("∼⁄⋅∗‒―", "~/·*–—")  # as mini's tokenizer reads them  # noqa: RUF001
# Soft hyphens and their like are dropped, as by BERT, and ligatures written as their letters.
_SPELLED = str.maketrans(dict.fromkeys("\u00ad\u200b\u2060\ufeff"))
_SPELLED |= {number: unicodedata.normalize("NFKC", chr(number)) for number in range(0xFB00, 0xFB07)}
_ABBREVIATED = re.compile(r"[A-Za-z]|[A-Z][a-z]{1,3}|sp|spp|ssp|subsp|pv|cv|var")  # behind which a sentence may go on


class _Token(NamedTuple):
    key: str
    form: str
    has_space: bool
    begins: bool
    weight: float


def restore_written_form(text: str, document: str, learned: "WrittenForm | None" = None) -> str:
    """Write words and spaces as the document does, in the same surroundings if there are such; the rest by rules."""
    learned = learned or learn_written_form(document)
    tokens = list(_tokens(text))
    learned.learn(token.key for token in tokens)
    forms, spaces, goes_on = learned.forms, learned.spaces, learned.goes_on
    keys = ["", *(token.key for token in tokens), ""]
    written: list[str] = []
    begins = True
    open_quote = False
    for place, token in enumerate(tokens, 1):
        before, key, after = keys[place - 1 : place + 2]
        two_before = keys[place - 2] if place > 1 else ""
        form = _most_common(forms, (before, key, after), (before, key, None), (None, key, after))
        if form is None and key in ("march", "may"):
            form = key.capitalize() if before.isdigit() or after.isdigit() else key
        form = form or _most_common(forms, (None, key, None)) or NAMES.get(key, token.form)
        has_space = _most_common(spaces, (two_before, before, key), (None, before, key))
        exact = spaces.get((two_before, before, key), Counter())
        is_known = '"' in (before, key) and len(exact) == 1
        if is_known and key == '"':  # against what was opened before only where the next word is the document's, too
            opens = True in exact or not before or before[-1] in OPENING
            is_known = opens != open_quote or (before, key, after) in spaces
            open_quote = not opens if is_known else open_quote
        if is_known:
            has_space = True in exact
        elif has_space is None or '"' in (before, key):
            has_space = _by_rule(two_before, before, key, token.has_space, open_quote)
        begins = begins and not (before in ENDS and _is_word(key) and not has_space)  # the ending of a file's name
        if before == "." and (times := goes_on.get((two_before, key))):  # an abbreviation, or behind a single letter
            begins = times < 0
        if begins and _is_word(key) and before and not _is_word(before) and before not in ENDS:
            is_quoted = before == '"' and (not two_before or two_before in ENDS)
            begins = is_quoted or not (_most_common(forms, (before, key, after)) or "").islower()
        if not form.isascii() and unicodedata.normalize("NFC", token.form) == form:
            form = token.form
        if begins and _is_word(key):
            form = form[0].upper() + form[1:] if form.islower() else form
            begins = False
        if key in ENDS:
            begins = _ends(before, key)
        begins = begins and key not in (",", ";", ":")
        open_quote ^= key == '"'
        written.append((" " if has_space and written else "") + form)
    return "".join(written)


def moved_places(words: list[dict[str, Any]], before: str, after: str) -> list[dict[str, Any]]:
    """Find words of a text again in its written form, which has other spaces."""
    starts, ends = ([i for i, sign in enumerate(text) if not sign.isspace()] for text in (before, after))
    if len(starts) != len(ends):  # a capital of another length, such as that of a ligature
        return words
    place = dict(zip(starts, ends, strict=True))
    found = []
    for word in words:
        inside = [place[i] for i in range(word["start"], word["end"]) if i in place]
        start, end = inside[0], inside[-1] + 1
        found.append({**word, "text": after[start:end], "start": start, "end": end})
    return found


def _tokens(text: str) -> Iterator[_Token]:
    """Words and signs, as BERT's tokenizer divides a text before it makes pieces."""
    for line in (text if text.isascii() else text.translate(_SPELLED)).splitlines():
        words = line.split()
        is_heading = 0 < len(words) <= LONGEST_HEADING and line.rstrip()[-1] not in ENDS
        weight = HEADING if is_heading else 1.0
        begins, before, last = True, "", -1
        for match in TOKEN.finditer(line):
            form = match[0]
            yield _Token(_key(form), form, match.start() > last, begins, weight)
            begins = _ends(before, form) or (begins and not _is_word(form))
            before, last = form, match.end()


def _is_word(form: str) -> bool:
    return form[:1].isalnum()


def _ends(before: str, form: str) -> bool:
    """Whether a sign ends a sentence, and not an initial or an abbreviation such as e.g."""
    return form in ENDS and not (form == "." and len(before) == 1 and before.isalpha())


def _key(form: str) -> str:
    """A word as an uncased tokenizer sees it: without capitals and accents, and small figures as figures."""
    if form.isascii():
        return form.lower()
    signs = unicodedata.normalize("NFKD", form.translate(_ALIKE))
    plain = "".join(sign for sign in signs if unicodedata.category(sign) != "Mn")
    return plain.lower() or form  # a mark of its own


class WrittenForm:
    """How a document writes words, alone and beside others, and whether it puts a space between two.

    It is learned of a word when that is asked for the first time: few of a long document's are.

    Args:
        document: With its capitals.

    Attributes:
        forms: What stands how often for (word before, word, word after), where None is any.
        spaces: Whether a space stands how often before a word, by the two words before it and the word.
        goes_on: Of words on both sides of a full stop, how much more often the latter has no capital, as after an
            abbreviation.
    """

    def __init__(self, document: str) -> None:
        self.forms: dict[tuple[str | None, str, str | None], Counter[str]] = {}
        self.spaces: dict[tuple[str | None, str, str], Counter[bool]] = {}
        self.goes_on: dict[tuple[str, str], int] = {}
        self._tokens = list(_tokens(unicodedata.normalize("NFC", document)))  # a letter has as many signs as decoded
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, token in enumerate(self._tokens):
            self._places[token.key].append(place)

    def learn(self, words: Iterable[str]) -> None:
        """Learn how these are written, as an uncased tokenizer has them."""
        for key in set(words) & self._places.keys():
            self._learn(key)
            self._places.pop(key, None)  # after it, as another thread may ask for the same

    def _learn(self, key: str) -> None:
        forms: Any = defaultdict(Counter)
        spaces: dict[tuple[str | None, str, str], Counter[bool]] = defaultdict(Counter)
        goes_on: Counter[tuple[str, str]] = Counter()
        initial: Counter[str] = Counter()
        for place in self._places.get(key, ()):
            token = self._tokens[place]
            two_before, before = (self._tokens[place - back].key if place >= back else "" for back in (2, 1))
            after = self._tokens[place + 1].key if place + 1 < len(self._tokens) else ""
            for further in (two_before, None):
                spaces[further, before, key][token.has_space] += 1
            if before == ".":
                left = self._tokens[place - 2].form if place > 1 else ""
                is_abbreviated = token.form.islower() and _ABBREVIATED.fullmatch(left)
                goes_on[two_before, key] += bool(is_abbreviated) - token.form[0].isupper()
            if token.begins and token.form[0].isupper() and not token.form[1:2].isupper():
                initial[token.form] += 1
                continue
            for one in (before, None):
                for other in (after, None):
                    forms[one, key, other][token.form] += token.weight
        # Only at beginnings of sentences: a name, if it is there again and again, and no common word.
        if not forms and key not in COMMON:
            forms[None, key, None] = initial
        self.forms.update(forms)
        self.spaces.update(spaces)
        self.goes_on.update(goes_on)


@functools.lru_cache(maxsize=1)  # several summaries of a document are restored one after the other
def learn_written_form(document: str) -> WrittenForm:
    """How the document writes its words."""
    return WrittenForm(document)


def _most_common(counters: Mapping[Any, Counter[Any]], *contexts: Any) -> Any:
    """What stands most often in the first of the surroundings that there are."""
    for context in contexts:
        if counters.get(context):
            return counters[context].most_common(1)[0][0]
    return None


def _by_rule(two_before: str, before: str, key: str, has_space: bool, open_quote: bool) -> bool:
    if before == '"' and open_quote:
        return False
    if before[-1:] in OPENING or key[0] in CLOSING:
        return False
    if key == '"':
        return not open_quote
    if before in (".", ",", ":") and two_before.isdigit() and key.isdigit():  # 0.05
        return False
    if before == "." and len(two_before) == 1 and len(key) == 1 and key.isalpha():  # U.S.
        return False
    if before == "–" or key == "–":  # of years, or a dash
        return not (two_before if before == "–" else before).isdigit()
    return has_space and not (key[0] in JOINING or before[-1:] in JOINING)
