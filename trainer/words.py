"""Sentences as ``--model linear`` takes them: TF-IDF of up to three words in a row.

Where a script has no blanks podium.data.preprocessing.text takes characters for words, so the terms
are characters in a row there.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.errors import InvalidInput
from podium.trainer.task import Task

Array = NDArray[Any]

MOST_TERMS = 20_000
"""Terms, the most frequent ones."""

LONGEST = 3
"""Words of a term."""

SCALE = 10.0
"""Length of the vector of a sentence, with which the penalties that suit tables suit sentences."""

RESERVED = 2
"""The first indices of a vocabulary: padding and unknown words, which are no terms."""

Term = tuple[int, ...]


def _terms(tokens: Array) -> Iterator[Term]:
    indices = tokens.tolist()
    for size in range(1, LONGEST + 1):
        rows = (indices[at:] for at in range(size))
        yield from (term for term in zip(*rows, strict=False) if min(term) >= RESERVED)


class Words:
    """The terms of sentences.

    Args:
        learned: What is learned from what.
        tokens: The training part, [n, length], which terms and their weights come from.

    Raises:
        InvalidInput: No term is in two sentences.
    """

    def __init__(self, learned: Task, tokens: Array) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.input, self.dtype = learned.input, learned.info.dtype
        self.vectorizer = TfidfVectorizer(
            analyzer=_terms, min_df=2, max_features=MOST_TERMS, sublinear_tf=True
        )
        try:
            self.vectorizer.fit(tokens)
        except ValueError:
            raise InvalidInput(
                "no word is in two of the training sentences: there is nothing to learn from",
                "more sentences",
            ) from None

    def rows(self, tokens: Array) -> Any:
        """Return the sentences as the model takes them, a sparse matrix [n, terms]."""
        return self.vectorizer.transform(tokens) * SCALE

    def graph(self) -> tuple[list[Any], dict[str, Array]]:
        """Return the nodes that make ``features`` of the input, and their constants."""
        from onnx import TensorProto, helper

        column = self.vectorizer.vocabulary_
        terms = sorted(column, key=lambda term: (len(term), term))
        ends = np.cumsum(np.bincount([len(term) for term in terms], minlength=LONGEST + 1))
        pool = [0, *np.cumsum([ends[1], 2 * (ends[2] - ends[1])]).tolist()]
        longest = len(terms[-1])
        node, double = helper.make_node, TensorProto.DOUBLE
        nodes = [
            node("Cast", [self.input], ["indices"], to=TensorProto.INT64),
            node(
                "TfIdfVectorizer",
                ["indices"],
                ["found"],
                mode="TF",
                min_gram_length=1,
                max_gram_length=longest,
                max_skip_count=0,
                ngram_counts=pool[:longest],
                ngram_indexes=[int(column[term]) for term in terms],
                pool_int64s=[int(index) for term in terms for index in term],
            ),
            node("Cast", ["found"], ["counts"], to=double),
            node("Greater", ["counts", "zero"], ["is_there"]),
            node("Max", ["counts", "one"], ["at_least_one"]),
            node("Log", ["at_least_one"], ["logs"]),
            node("Add", ["logs", "one"], ["frequencies"]),
            node("Where", ["is_there", "frequencies", "zero"], ["weighted"]),
            node("Mul", ["weighted", "idf"], ["vectors"]),
            node("ReduceL2", ["vectors"], ["lengths"], axes=[1], keepdims=1),
            node("Max", ["lengths", "least"], ["divisors"]),
            node("Div", ["vectors", "divisors"], ["units"]),
            node("Mul", ["units", "scale"], ["features"]),
        ]
        constants = {
            "zero": np.array(0.0),
            "one": np.array(1.0),
            "least": np.array(1e-300),
            "scale": np.array(SCALE),
            "idf": self.vectorizer.idf_,
        }
        return nodes, constants
