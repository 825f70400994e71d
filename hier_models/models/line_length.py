"""Lines of poems: what may be written next in them."""

from collections.abc import Mapping, Sequence

import torch
from torch.nn.functional import pad
from transformers import LogitsProcessor

from .poem_sounds import EITHER, FORMS, LEVEL, OBLIQUE, PoemSounds, line_patterns


LINE_LENGTHS = (5, 7)
LENGTH_TOKENS = {length: f"[{length}]" for length in LINE_LENGTHS}
# How much less probable a character gets that an earlier line has, in nats. Poets repeat 1 to 3 % of their characters.
EARLIER = 2.0


def check_line_length(length: object) -> int:
    """Check the length of a poem's lines."""
    if isinstance(length, bool) or not isinstance(length, int) or length not in LINE_LENGTHS:
        raise ValueError(f"`length` must be 5 or 7, the characters of a line, got {length!r}")
    return length


class LineLengthLogitsProcessor(LogitsProcessor):
    """Has `generate` write so many characters, no marks among them, and then the end. Source: HAM, section 5.2."""

    def __init__(self, length: int, character_ids: Sequence[int], eos_token_id: int) -> None:
        self.length = check_line_length(length)
        if not len(character_ids):
            raise ValueError("`character_ids` is empty: the vocabulary has no token that is a Chinese character")
        if eos_token_id in character_ids:
            raise ValueError(f"`eos_token_id` ({eos_token_id}) is one of `character_ids`; it must end the line")
        self.character_ids = torch.as_tensor(list(character_ids), dtype=torch.long)
        self.eos_token_id = eos_token_id
        self._barred: torch.Tensor | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Leave the tokens that may come next."""  # input_ids (batch, tokens), scores (batch, vocabulary)
        if input_ids.shape[-1] - 1 < self.length:
            barred = self._barred
            if barred is None or barred.shape[-1] != scores.shape[-1] or barred.device != scores.device:
                barred = torch.ones(scores.shape[-1], dtype=torch.bool, device=scores.device)
                barred[self.character_ids.to(scores.device)] = False
                self._barred = barred
            return scores.masked_fill(barred, -torch.inf)  # type: ignore[return-value]
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.eos_token_id] = 0.0
        return ended  # type: ignore[return-value]


class RepeatedCharacterLogitsProcessor(LogitsProcessor):
    """Has no character written twice in a line, and few that the poem has already: `earlier`, the ids of each poem."""

    def __init__(self, earlier: Sequence[Sequence[int]] = ()) -> None:
        self.earlier = [list(ids) for ids in earlier]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Bar the line's own characters."""  # input_ids (batch, tokens), scores (batch, vocabulary)
        if self.earlier:
            less = torch.zeros(len(self.earlier), scores.shape[-1])  # (poems, vocabulary)
            for row, ids in zip(less, self.earlier, strict=True):
                row[ids] = EARLIER
            each = len(scores) // len(self.earlier)  # rows of a poem: its beams
            scores = scores - less.to(scores).repeat_interleave(each, dim=0)  # type: ignore[assignment]
        return scores.scatter(1, input_ids[:, 1:], -torch.inf)  # type: ignore[return-value]


class PoemFormLogitsProcessor(LogitsProcessor):
    """Has lines end in a rhyme, or have the tones of regulated quatrains, wherever that leaves anything to write.

    Args:
        sounds: How characters sound.
        poems: The lines of each poem so far. The rows of a batch are these poems, each as often as it has beams.
        length: Characters of a line.
        characters: Token id -> the character that it is.
        rhyme: Whether the second and fourth lines rhyme, and the first with them if it ends level.
        tones: Whether lines have the tones of one of the four forms.
    """

    def __init__(
        self,
        sounds: PoemSounds,
        poems: Sequence[Sequence[str]],
        length: int,
        characters: Mapping[int, str],
        *,
        rhyme: bool,
        tones: bool,
    ) -> None:
        self.length = check_line_length(length)
        tokens = [characters.get(number, "") for number in range(max(characters) + 1)]
        kinds = (EITHER, LEVEL, OBLIQUE)
        self.sounds = torch.tensor([[sounds.has_tone(c, kind) for c in tokens] for kind in kinds])  # (3, vocabulary)
        rhymes = torch.tensor([sounds.rhyme_of.get(c, -1) for c in tokens])  # (vocabulary,)
        self.ends = torch.ones(len(poems), len(tokens), dtype=torch.bool)
        for row, lines in zip(self.ends, poems, strict=True):
            if not rhyme or len(lines) == 2:
                continue
            if partner := sounds.to_rhyme_with(lines):
                used = {line[-1] for line in lines}
                row &= (rhymes == sounds.rhyme_of.get(partner, -2)) & torch.tensor([c not in used for c in tokens])
            else:  # there are others to rhyme with; or it is a first line, and does not rhyme
                row &= (rhymes >= 0) | (self.sounds[2] if not lines else torch.tensor(False))
        anything = [EITHER * length]
        # Lines that are of no form already can go on in any.
        found = [line_patterns(length, len(p), sounds.forms(p) or FORMS) if tones else anything for p in poems]
        most = max(map(len, found), default=1)
        # A poem with fewer patterns has its last one again.
        self.patterns = torch.tensor(  # (poems, patterns, length), numbers of `kinds`
            [[[kinds.index(tone) for tone in [*own, *[own[-1]] * most][i]] for i in range(most)] for own in found]
        )

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Bar what sounds otherwise."""  # input_ids (batch, tokens), scores (batch, vocabulary)
        written = input_ids[:, 1:].cpu()  # (batch, written)
        place, times = written.shape[1], len(scores) // len(self.patterns)
        if place >= self.length:
            return scores
        patterns = self.patterns.repeat_interleave(times, dim=0)  # (batch, patterns, length)
        alive = self.sounds[patterns[:, :, :place], written[:, None]].all(dim=-1)  # (batch, patterns)
        allowed = (self.sounds[patterns[:, :, place]] & alive[..., None]).any(dim=1)  # (batch, vocabulary)
        if place == self.length - 1:
            allowed &= self.ends.repeat_interleave(times, dim=0)
        allowed = pad(allowed, (0, scores.shape[-1] - allowed.shape[-1])).to(scores.device)
        kept = scores.masked_fill(~allowed, -torch.inf)
        nothing = kept.isneginf().all(dim=-1, keepdim=True)
        return torch.where(nothing, scores, kept)  # type: ignore[return-value]
