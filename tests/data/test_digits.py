from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from fedul.data import SOURCES, find_source, read_source
from fedul.errors import InputError


def test_digits_are_split_by_writer_as_published() -> None:
    digits = read_source("digits")
    assert digits.train_inputs.shape == (3823, 1, 8, 8)
    assert digits.test_inputs.shape == (1797, 1, 8, 8)
    assert np.bincount(digits.train_labels).tolist() == [376, 389, 380, 389, 387, 376, 377, 387, 380, 382]
    assert np.bincount(digits.test_labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_are_stored_as_bytes_and_seen_in_the_unit_interval() -> None:
    digits = read_source("digits")
    assert digits.train_inputs.dtype == torch.uint8
    seen = digits.scaling(digits.train_inputs)
    assert (seen.min().item(), seen.max().item()) == (0, 1)


def test_digits_are_named_by_what_they_show() -> None:
    assert list(read_source("digits").classes) == list("0123456789")


def test_digits_are_found_whatever_the_data_folder() -> None:
    path = find_source("digits", "no/such/folder")
    assert path is not None
    assert path.is_file()


@pytest.mark.parametrize("name", SOURCES)
def test_a_listed_data_set_says_how_large_it_is_and_on_what_terms(name: str) -> None:
    source = SOURCES[name]
    assert source.rows == source.train_rows + source.test_rows > 0
    assert source.classes >= 2
    assert source.about
    assert source.licence


def test_only_digits_come_with_the_package() -> None:
    assert [name for name, source in SOURCES.items() if source.embedded] == ["digits"]


def test_the_listed_numbers_are_those_of_the_digits() -> None:
    digits, source = read_source("digits"), SOURCES["digits"]
    assert (len(digits.train_labels), len(digits.test_labels)) == (source.train_rows, source.test_rows)
    assert len(digits.classes) == source.classes


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="unknown data set 'digts': did you mean 'digits'"):
        read_source("digts")
    with pytest.raises(InputError, match="unknown data set"):
        find_source("digts")


def test_listing_the_data_sets_loads_neither_torch_nor_numpy() -> None:
    program = (
        "import sys, fedul.data, fedul.data.fetch\n"
        "[fedul.data.find_source(name, 'no/such/folder') for name in fedul.data.SOURCES]\n"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
