"""The written form of a summary, given back from its document: capitals, accents and spaces.

An uncased tokenizer such as BERT's takes them away: what it decodes reads "( born november 9, 1988 ) is a co -
founder". Most of a summary's words stand in its document, where one can see how they are written.
"""

import calendar
import functools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


TOKEN = re.compile(r"[^\W_]+|[^\w\s]|_")
OPENING, CLOSING = "([{“‘«¿¡$£€#@", ")]}”’»%,.;:!?…"  # noqa: RUF001
JOINING = "-‐/'’_"  # noqa: RUF001
ENDS = frozenset(".!?。！？")
HEADING = 0.1  # a word of a heading, which may have capitals for being one, counts less than one of a sentence
LONGEST_HEADING = 12  # words


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that begin sentences and are no names.
COMMON = _words(
    """a about above according across additionally after afterwards again against all also although among an and
another any are as at based be because been before being below besides between both but by can consequently currently
despite do does due during each earlier eight either especially even every except few finally first five following
for former four from further furthermore generally given had has have he hence her here his how however i if
importantly in including indeed initially instead interestingly into is it its just last later like many meanwhile
moreover more most much my nevertheless next nine no none nor not note notably now of often on once one only or
originally other others our over overall perhaps previously rather recent recently second seven several she should
similarly since six so some sometimes soon specifically still subsequently such surprisingly taken ten than that
the their them then there therefore these they third this those though three through throughout thus to today
together two typically under unfortunately unless unlike until up upon use using usually various very was we well
were what when where whereas whether which while who whose why will with within without would yet you your"""
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


_ABBREVIATED = re.compile(r"[A-Za-z]|[A-Z][a-z]{1,3}|sp|spp|ssp|subsp|pv|cv|var")  # behind which a sentence may go on


class _Token(NamedTuple):
    key: str
    form: str
    has_space: bool
    begins: bool
    weight: float


def restore_written_form(text: str, document: str, learned: Any = None) -> str:
    """Write words and spaces as the document does, in the same surroundings if there are such; the rest by rules."""
    forms, spaces, goes_on = learned or learn_written_form(document)
    tokens = list(_tokens(text))
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
        begins = begins and not (before in ENDS and key.isalnum() and not has_space)  # the ending of a file's name
        if before == "." and goes_on[two_before, key]:  # an abbreviation, or the end behind a single letter
            begins = goes_on[two_before, key] < 0
        if begins and key.isalnum() and before and not before.isalnum() and before not in ENDS:
            is_quoted = before == '"' and (not two_before or two_before in ENDS)
            begins = is_quoted or not (_most_common(forms, (before, key, after)) or "").islower()
        if begins and key.isalnum():
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
    for line in text.splitlines():
        words = line.split()
        is_heading = 0 < len(words) <= LONGEST_HEADING and line.rstrip()[-1] not in ENDS
        weight = HEADING if is_heading else 1.0
        begins, before, last = True, "", -1
        for match in TOKEN.finditer(line):
            form = match[0]
            yield _Token(_key(form), form, match.start() > last, begins, weight)
            begins = _ends(before, form) or (begins and not form.isalnum())
            before, last = form, match.end()


def _ends(before: str, form: str) -> bool:
    """Whether a sign ends a sentence, and not an initial or an abbreviation such as e.g."""
    return form in ENDS and not (form == "." and len(before) == 1 and before.isalpha())


def _key(form: str) -> str:
    """A word as an uncased tokenizer sees it: without capitals and accents."""
    if form.isascii():
        return form.lower()
    plain = "".join(sign for sign in unicodedata.normalize("NFD", form) if unicodedata.category(sign) != "Mn")
    return plain.lower() or form  # a mark of its own


_Forms = dict[tuple[str | None, str, str | None], Counter[Any]]
_Spaces = dict[tuple[str | None, str, str], Counter[bool]]
_GoesOn = Counter[tuple[str, str]]  # of words on both sides of a full stop


@functools.lru_cache(maxsize=1)  # several summaries of a document are restored one after the other
def learn_written_form(document: str) -> tuple[_Forms, _Spaces, _GoesOn]:
    """How the document writes words, alone and beside others, and whether it puts a space between two.

    And how much more often it goes on with a small letter behind a full stop, as after an abbreviation.
    """
    forms: _Forms = defaultdict(Counter)
    spaces: _Spaces = defaultdict(Counter)
    goes_on: _GoesOn = Counter()
    tokens = list(_tokens(document))
    initial: dict[str, Counter[str]] = defaultdict(Counter)
    for place, token in enumerate(tokens):
        before = tokens[place - 1].key if place else ""
        after = tokens[place + 1].key if place + 1 < len(tokens) else ""
        two_before = tokens[place - 2].key if place > 1 else ""
        for further in (two_before, None):
            spaces[further, before, token.key][token.has_space] += 1
        if before == ".":
            is_abbreviated = place > 1 and token.form.islower() and _ABBREVIATED.fullmatch(tokens[place - 2].form)
            goes_on[two_before, token.key] += bool(is_abbreviated) - token.form[0].isupper()
        if token.begins and token.form[0].isupper() and not token.form[1:2].isupper():
            initial[token.key][token.form] += 1
            continue
        for left in (before, None):
            for right in (after, None):
                forms[left, token.key, right][token.form] += token.weight  # type: ignore[assignment]
    for key, counts in initial.items():
        # Only at beginnings of sentences: a name, if it is there again and again, and no common word.
        if (None, key, None) not in forms and key not in COMMON:
            forms[None, key, None] += counts
    return forms, spaces, goes_on


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
