"""Tables of the user's own, read in three passes, none of which holds more than a block of text in memory.

The first finds each row's client and set, the second what the training rows show of every column, the third makes
inputs of them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fedul.config import OwnDataConfig
from fedul.data.form import Form
from fedul.data.number_marks import check_points
from fedul.data.own_sets import ALONE, Codes, Names
from fedul.data.tables import TableFile, open_table, table_paths
from fedul.errors import InputError
from fedul.schema import Schema
from fedul.schema.facts import Facts, facts_of, words_of
from fedul.schema.faults import fault, first_wrong
from fedul.schema.table import TableSchema

DEFAULT_SET = "set"


class OwnTable:
    """The rows of one or more files with the same columns."""

    def __init__(self, config: OwnDataConfig) -> None:
        self.what = config.data
        self._files = [open_table(path) for path in table_paths(config.data)]
        self._client, self._set, self._label = config.client_column, config.set_column, config.label_column
        self._categories = config.category_columns
        first = self._files[0]
        if self._client is None and "client" in first.columns:
            self._client = "client"
        if self._set is None:
            if DEFAULT_SET not in first.columns:
                raise InputError(
                    f"{first.path}: which column names the set of a row? Say it with --set-column; there are "
                    f"{', '.join(first.columns[:12])}."
                )
            self._set = DEFAULT_SET
        special = (self._client, self._set, self._label, config.truth_column)
        named = [*filter(None, special), *config.ignore_columns, *config.category_columns]
        for file in self._files:
            file.check_has(named)
        taken = {*filter(None, special), *config.ignore_columns}
        if both := [name for name in config.category_columns if name in taken]:
            raise InputError(f"category-columns: '{both[0]}' is used otherwise; leave it out of the one or the other.")
        self._features = [name for name in first.columns if name not in taken]
        for file in self._files[1:]:
            self._check_alike(file)

    def _check_alike(self, file: TableFile) -> None:
        first = self._files[0]
        for here, there in ((first, file), (file, first)):
            if lost := [name for name in here.columns if name not in there.columns]:
                raise InputError(
                    f"{there.path}: lacks column '{lost[0]}', which {here.path.name} has; give all the same columns."
                )

    @cached_property
    def _keys(self) -> tuple[Names, Names, Names | None]:
        coders = [_Coder(), _Coder(), _Coder()]
        columns = [self._client, self._set, self._label]
        wanted = list(dict.fromkeys(name for name in columns if name is not None))
        for file in self._files:
            alone = file.path.stem if len(self._files) > 1 else ALONE
            for block in file.blocks(wanted):
                for coder, name in zip(coders, columns, strict=True):
                    if name is not None:
                        coder.add(words_of(block.column(name)))
                    elif coder is coders[0]:
                        coder.repeat(alone, len(block))
        clients, sets, labels = (coder.names() for coder in coders)
        if not len(clients.codes):
            raise InputError(f"{self.what}: holds no rows.")
        return clients, sets, labels if self._label else None

    @property
    def clients(self) -> Names:
        return self._keys[0]

    @property
    def sets(self) -> Names:
        return self._keys[1]

    @property
    def labels(self) -> Names | None:
        return self._keys[2]

    def column(self, name: str) -> Names:
        """The words of a column."""
        coder = _Coder()
        for file in self._files:
            for block in file.blocks([name]):
                coder.add(words_of(block.column(name)))
        return coder.names()

    def row(self, number: int) -> str:
        if len(self._files) == 1:
            return f"{self._files[0].path}, row {number + 1}"
        return f"{self.what}, row {number + 1} of all"

    def form(self, train: NDArray[np.bool_]) -> Form:
        facts = dict.fromkeys(self._features, Facts())
        first = 0
        for file in self._files:
            check_points(file, [name for name in self._features if name not in self._categories])
            for block in file.blocks(self._features):
                chosen = block.filter(pa.array(train[first : (first := first + len(block))]))
                for name in self._features:
                    facts[name] += facts_of(chosen.column(name), as_words=name in self._categories)
        for name, about in facts.items():
            if fault(about):
                raise self._at_fault(name, about, train)
        return Form("table", facts)

    def _at_fault(self, name: str, about: Facts, train: NDArray[np.bool_]) -> InputError:
        """What is wrong with a column, and in which row first."""
        first = 0
        for file in self._files:
            for block in file.blocks([name]):
                rows = np.flatnonzero(train[first : first + len(block)])
                if found := first_wrong(block.column(name).take(pa.array(rows)), about):
                    return InputError(
                        f"{self.row(first + int(rows[found[0]]))}: column '{name}': {fault(about, found[1])}"
                    )
                first += len(block)
        return InputError(f"{self.what}: column '{name}': {fault(about)}")

    def encoded(self, schema: Schema | None) -> torch.Tensor:
        assert isinstance(schema, TableSchema)
        made = np.empty((len(self.clients.codes), *schema.shape), np.float32)
        first = 0
        for file in self._files:
            done = 0  # of this file
            for block in file.blocks(schema.names):
                rows = {name: block.column(name) for name in schema.names}
                schema.encode(rows, str(file.path), made[first : (first := first + len(block))], first=done)
                done += len(block)
        return torch.from_numpy(made)


class _Coder:
    """Words as numbers, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._parts: list[Codes] = []

    def add(self, words: pa.Array) -> None:
        if not pa.types.is_string(words.type):
            words = words.cast(pa.string())
        coded = words.dictionary_encode()
        numbers = [self._numbers.setdefault(word, len(self._numbers)) for word in coded.dictionary.to_pylist()]
        places = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._parts.append(np.array([*numbers, -1], dtype=np.int64)[places])

    def repeat(self, word: str, count: int) -> None:
        self._parts.append(np.full(count, self._numbers.setdefault(word, len(self._numbers)), dtype=np.int64))

    def names(self) -> Names:
        return Names(tuple(self._numbers), np.concatenate([np.empty(0, np.int64), *self._parts]))
