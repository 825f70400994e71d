"""Which text each word of a context belongs to: one row for each document, its words on the left."""

import torch


class Layout:
    """Moves words between the order they are given in and a row for each document, its padding on the right."""

    def __init__(self, mask: torch.Tensor, document_ids: torch.Tensor | None = None):
        batch, words = mask.shape
        self.given_mask = mask
        self.rows_of_batch: torch.Tensor | None = None  # the context of each row, where that is not its own number
        self.flat: torch.Tensor | None = None  # place of each word in the rows, if they are not as given
        lengths = mask.sum(-1)
        if document_ids is None:
            places = mask.cumsum(-1) - 1
            self.mask = torch.arange(words, device=mask.device) < lengths[:, None]
            self.lengths = lengths
            if bool((self.mask != mask).any()):
                self.flat = places + torch.arange(batch, device=mask.device)[:, None] * words
            return
        most = int(document_ids.masked_fill(~mask, 0).max()) + 1 if mask.numel() else 1
        keys = torch.arange(batch, device=mask.device)[:, None] * most + document_ids
        # A context without any word has a row too, of padding.
        empty = torch.arange(batch, device=mask.device)[lengths == 0] * most
        known, numbers = torch.cat([keys[mask], empty]).unique(return_inverse=True)
        numbers = numbers[: int(lengths.sum())]
        counts = torch.bincount(numbers, minlength=len(known))
        width = max(1, int(counts.max()))
        order = numbers.argsort(stable=True)
        starts = counts.cumsum(0) - counts
        places = torch.empty_like(numbers)
        places[order] = torch.arange(len(numbers), device=mask.device) - starts[numbers[order]]
        self.mask = torch.arange(width, device=mask.device) < counts[:, None]
        self.lengths = counts
        self.rows_of_batch = known // most
        self.flat = mask.new_zeros(mask.shape, dtype=torch.long)
        self.flat[mask] = numbers * width + places

    def to_rows(self, given: torch.Tensor) -> torch.Tensor:  # given (batch, words, …)
        """Bring what there is for each word into rows."""
        if self.flat is None:
            return given
        rows = given.new_zeros(self.mask.numel(), *given.shape[2:])
        rows[self.flat[self.given_mask]] = given[self.given_mask]
        return rows.view(*self.mask.shape, *given.shape[2:])  # (rows, words of the longest, …)

    def to_given(self, rows: torch.Tensor) -> torch.Tensor:  # rows (rows, words of the longest, …)
        """Bring what there is for each word of the rows into the order of the batch."""
        if self.flat is None:
            return rows
        given = rows.new_zeros(*self.given_mask.shape, *rows.shape[2:])
        given[self.given_mask] = rows.flatten(0, 1)[self.flat[self.given_mask]]
        return given  # (batch, words, …)

    def of_rows(self, questions: torch.Tensor) -> torch.Tensor:  # questions (batch, …)
        """Give each row what there is for its context."""
        return questions if self.rows_of_batch is None else questions[self.rows_of_batch]  # (rows, …)
