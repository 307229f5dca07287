"""Sentences as two arrays: the index of each word, and a mask that is 1 where there is one."""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from podium.data.rows import Applied, Fitted, Rows
from podium.data.values import to_text
from podium.errors import InvalidInput, require

_log = logging.getLogger(__name__)

PADDING, UNKNOWN_WORD = "(padding)", "(unknown)"
"""The first two entries of every vocabulary."""

MAX_WORDS, MAX_LENGTH = 20_000, 128
"""Unless asked for more."""

# Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without blanks: there a character is a
# word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003134f"
)
_LETTERS = rf"[^\W{_UNSPACED}]+"
_WORD = re.compile(rf"[{_UNSPACED}]|{_LETTERS}(?:'{_LETTERS})*|[^\w\s]")


def words(text: str) -> list[str]:
    """Split a sentence into words and punctuation, without regard to case; where none has blanks,
    into characters."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


@dataclass(frozen=True, kw_only=True)
class TextPreprocessing(Fitted):
    """Preprocessing of sentences to ``tokens`` int64 [n, length] and ``mask`` float32 [n, length];
    longer ones are cut."""

    vocabulary: tuple[str, ...]
    """Words by index; 0 is padding, 1 any word that the training part does not have."""

    length: int
    """Words of a sentence."""

    column: str = "text"
    """Where sentences are in a table."""

    tokens: str = "tokens"

    mask: str = "mask"

    kind: str = "text"

    def __post_init__(self) -> None:
        require(self.length >= 1, "length >= 1", length=self.length)
        if self.vocabulary[:2] != (PADDING, UNKNOWN_WORD):
            raise InvalidInput(
                f"a vocabulary begins with {PADDING} and {UNKNOWN_WORD}, not {self.vocabulary[:2]}"
            )

    @classmethod
    def fit(
        cls,
        texts: Iterable[str],
        *,
        column: str = "text",
        length: int = 0,
        max_words: int = MAX_WORDS,
    ) -> "TextPreprocessing":
        """Find the vocabulary: the most frequent words.

        Args:
            texts: Those of the training part, and no others.
            column: Where they are in the table.
            length: Words of a sentence; if 0, of the longest one, at most 128.

        Raises:
            InvalidInput: There is no word.
        """
        counts: Counter[str] = Counter()
        lengths: Counter[int] = Counter()
        for text in texts:
            sentence = words(text)
            counts.update(sentence)
            lengths[len(sentence)] += 1
        longest = max(lengths, default=0)
        if not longest:
            raise InvalidInput(f"column {column} has no word in the training part")
        length = length or min(longest, MAX_LENGTH)
        cut = sum(count for taken, count in lengths.items() if taken > length)
        if cut:
            _log.warning(
                "%s of the %s training sentences are cut, the longest from %d words to %d: length=%d takes all",
                f"{cut:,}",
                f"{lengths.total():,}",
                longest,
                length,
                longest,
            )
        frequent = sorted(counts, key=lambda word: (-counts[word], word))[:max_words]
        return cls(vocabulary=(PADDING, UNKNOWN_WORD, *frequent), length=length, column=column)

    def apply(self, rows: Rows) -> Applied:
        """Turn the sentences of a table into the inputs; a row without a word is left out and
        reported."""
        if self.column not in rows.columns:
            raise InvalidInput(
                f"{rows.file} has no column {self.column!r}, where the model reads sentences",
                f"its columns: {', '.join(rows.columns)}",
            )
        texts = to_text(rows.columns[self.column], ("",)).to_pylist()
        tokens = np.zeros((len(texts), self.length), np.int64)
        problems = []
        for at, text in enumerate(texts):
            indices = [self._index.get(word, 1) for word in words(text or "")][: self.length]
            tokens[at, : len(indices)] = indices
            if not indices:
                problems.append(rows.problem(at, self.column, "there is no word"))
        kept = np.flatnonzero(tokens[:, 0] != 0)
        inputs = {self.tokens: tokens[kept], self.mask: (tokens[kept] != 0).astype(np.float32)}
        return Applied(kept=kept, inputs=inputs, problems=tuple(problems))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(self.vocabulary)}
