from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ..data_files import class_priors
from .checks import refuses
from .command import Fedul


class Trap:
    """Leaves a file behind if it is ever unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, ("unpickled", "w")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("trian", "No such command 'trian': did you mean 'train'? 'fedul --help' lists all."),
        ("datasets fech mnist", "No such command 'fech': did you mean 'fetch'? 'fedul datasets --help' lists all."),
        ("predict", "Missing argument 'RUN'; see 'fedul predict --help'."),
        ("train --nonsense 1", "No such option '--nonsense'; 'fedul train --help' lists all."),
        ("train --bogus", "No such option '--bogus'; 'fedul train --help' lists all."),
        ("train --rouns 3", "No such option '--rouns': did you mean '--rounds'? 'fedul train --help' lists all."),
        ("train surplus", "surplus"),
        ("train --rounds", "--rounds"),
        ("demo --rounds 0", "--rounds"),
        ("datasets --nonsense", "--nonsense"),
        ("datasets fetch mnist --mirror ftp://127.0.0.1", "not a mirror's address"),
    ],
)
def test_a_wrong_call_is_refused(fedul: Fedul, tmp_path: Path, line: str, complaint: str) -> None:
    refuses(fedul, tmp_path, line, complaint)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--sets 0", "sets"),
        ("--sets -1", "sets"),
        ("--sets 1.5", "sets: expected whole numbers"),
        ("--sets abc", "sets: expected whole numbers"),
        ("--sets ''", "sets: expected whole numbers"),
        ("--sets 10,20", "2 numbers for 5 clients"),
        ("--clients 0", "clients: must be at least 1"),
        ("--split nonsense", "iid, noniid, noniid-text"),
        ("--prior-recipe nonsense", "boosted, text"),
        ("--prior-noise -0.1", "prior-noise: must be at least 0"),
        ("--held-out 1.5", "held-out: must be at most 0.9"),
        ("--held-out nan", "held-out: expected a number"),
        ("--seed -1", "seed: must be at least 0"),
        ("--rounds -1", "rounds: must be at least 0"),
        ("--rounds nan", "--rounds"),
        ("--rounds abc", "--rounds"),
        ("--epochs 1.5", "--epochs"),
        ("--learning-rate -1", "learning-rate: must be at least 0"),
        ("--learning-rate nan", "learning-rate: expected a number"),
        ("--learning-rate inf", "learning-rate: expected a number"),
        ("--participation 0", "participation: must be above 0"),
        ("--participation 2", "participation: must be at most 1"),
        ("--batch-size 0.5", "batch-size: expected a number of rows"),
        ("--batch-size 0", "batch-size: expected a number of rows"),
        ("--optimizer nonsense", "adam, sgd"),
        ("--select nonsense", "held-out-loss, held-out-error, last"),
        ("--augment nonsense", "none, rotate, flip, flip-crop"),
        ("--method-option labels", "NAME=VALUE"),
        ("--resume", "--resume needs --out"),
        ("--config missing.toml", "there is no such file"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(
    fedul: Fedul, tmp_path: Path, options: str, complaint: str
) -> None:
    refuses(fedul, tmp_path, f"train {options}", complaint)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--data digit", "did you mean 'digits'?"),
        ("--data folder --priors x.csv --client-column c", "there is no file, folder or data set 'folder'"),
        ("--method fedull", "did you mean 'fedul'?"),
        ("--algorithm fedavgg", "did you mean 'fedavg'?"),
        ("--model mpl", "did you mean 'mlp'?"),
        ("--model nowhere.to.be:found", "could not be imported"),
        ("--device nonsense", "device: 'nonsense'"),
        ("--device cuda:99", "device: 'cuda:99' is not available; use auto or cpu."),
        ("--method supervised --method-option labels=2", "labels: must be at most 1"),
        ("--method supervised --method-option labels=x", "labels: expected a number"),
        ("--method supervised --method-option nonsense=1", "unknown option of method supervised 'nonsense'"),
        ("--algorithm-option nonsense=1", "unknown option of algorithm fedavg 'nonsense'"),
        ("--start-weights missing.safetensors", "missing.safetensors"),
        ("--held-out 0", "no rows are held out to select the round by"),
        ("--clients 4000", "cannot fill 10 sets"),
        ("--test-prior nonsense", "not CLASS=SHARE"),
        ("--test-prior 0=0.5,1=0.5", "no share for class '2'"),
        ("--test-prior 0=x,1=0.1,2=0.1,3=0.1,4=0.1,5=0.1,6=0.1,7=0.1,8=0.1,9=0.1", "not a number"),
        ("--test-prior 0=0.9,1=0.1,2=0.1,3=0.1,4=0.1,5=0.1,6=0.1,7=0.1,8=0.1,9=0.1", "test-prior: sums to 1.8"),
        ("--test-prior 0=0,1=0.2,2=0.1,3=0.1,4=0.1,5=0.1,6=0.1,7=0.1,8=0.1,9=0.1", "class '0' has share 0"),
    ],
)
def test_an_option_that_does_not_fit_the_data_or_the_method_is_refused(
    fedul: Fedul, tmp_path: Path, options: str, complaint: str
) -> None:
    refuses(fedul, tmp_path, f"train {options} --rounds 1 --out RUN", complaint)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rouns = 3", "did you mean 'rounds'?"),
        ("rounds = ", "not a readable TOML file"),
        ("rounds = 1.5", "rounds: expected a whole number"),
        ("rounds = true", "rounds: expected a whole number"),
        ("rounds = [3]", "rounds: expected a whole number"),
        ("sets = 1.5", "sets: expected whole numbers"),
        ("sets = []", "sets"),
        ("sets-overlap = 'no'", "sets-overlap: expected true or false"),
        ("batch-size = 1.5", "batch-size: expected a number of rows"),
        ("method-option = 5", "method-option: expected NAME=VALUE"),
        ("model = 5", "model: expected text"),
        ("data = ['a.csv', 'b.csv']", "data: expected text"),
        ("[training]\nrounds = 3", "unknown key"),
    ],
)
def test_a_wrong_configuration_file_is_refused(fedul: Fedul, tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "options.toml").write_text(text)
    refuses(fedul, tmp_path, "train --config options.toml", complaint)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("client-1,1,0.55", "client-1,1,0.75", "line 2: the shares of set '1' of client 'client-1' sum to 1.2"),
        ("client-2,1,0.55,0.05", "client-2,1,0.65,-0.05", "'-0.05' of '1' is not a share"),
        ("client-2,1,0.55", "client-2,1,nan", "'nan' of '0' is not a share"),
        ("client-2,1,0.55", "client-2,1,inf", "'inf' of '0' is not a share"),
        ("client-2,1,0.55", "client-2,1,many", "'many' of '0' is not a number"),
        ("client-2,1,0.55", "client-2,1,55", "sum to 55.45, not to 1; proportions sum to 1 and percentages to 100"),
        ("7,8,9\n", "7,8\n", "line 2: 12 cells for 11 columns"),
        ("client-2,1,0.55,", "client-2,1,", "11 cells for 12 columns"),
        ("client-2,2,", "client-2,1,", "occurs twice"),
        ("client-5,", "client-6,", "the clients are client-1"),
        ("client-5,", "client-4,1", "but the clients are"),
        ("client,set,", "\0\xff,", "is not text"),
    ],
)
def test_a_wrong_table_of_priors_is_refused(fedul: Fedul, tmp_path: Path, old: str, new: str, complaint: str) -> None:
    right = class_priors({f"client-{c + 1}": 10 for c in range(5)})
    assert old in right
    (tmp_path / "priors.csv").write_bytes(right.replace(old, new).encode("latin-1"))
    refuses(fedul, tmp_path, "train --priors priors.csv --rounds 1 --out RUN", complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "there is no such file"), (b"", "is empty"), (bytes(range(256)), "is not text")],
)
def test_a_file_that_is_not_a_table_of_priors_is_refused(
    fedul: Fedul, tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / "priors.csv").write_bytes(content)
    refuses(fedul, tmp_path, "train --priors priors.csv --rounds 1 --out RUN", complaint)


def test_start_weights_that_are_garbage_are_refused(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "start.safetensors").write_bytes(b"garbage" * 100)
    refuses(fedul, tmp_path, "train --start-weights start.safetensors --out RUN", "not a complete safetensors file")


def test_missing_mnist_is_refused_with_the_command_that_downloads_it(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    refuses(fedul, tmp_path, "train --data mnist --data-dir data --out RUN", "fedul datasets fetch mnist")


def test_truncated_mnist_is_refused(fedul: Fedul, tmp_path: Path) -> None:
    for part in ("train", "t10k"):
        values = np.random.default_rng(0).integers(0, 10, (40, 28, 28), dtype=np.uint8)
        idx(tmp_path / f"{part}-images-idx3-ubyte", values)
        idx(tmp_path / f"{part}-labels-idx1-ubyte", values[:, 0, 0])
    images = tmp_path / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[: images.stat().st_size // 2])
    refuses(fedul, tmp_path, "train --data mnist --data-dir . --out RUN", "train-images-idx3-ubyte: not a complete idx")


def idx(path: Path, values: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes())


def test_an_out_that_is_a_file_is_refused(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "RUN").write_text("mine")
    refuses(fedul, tmp_path, "train --out RUN", "is a file")


def test_an_out_with_other_files_in_it_is_refused(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN/notes.txt").write_text("mine")
    refuses(fedul, tmp_path, "train --out RUN", "is not empty and not a run of fedul")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--method fedul --rounds 3", "add --resume"),
        ("--rounds 3 --seed 1", "holds a different run"),
        ("--resume --learning-rate 0.1", "learning-rate is 0.003 there, 0.1 here"),
        ("--resume --sets 20", "holds a different run"),
    ],
)
@pytest.mark.usefixtures("finished_run")
def test_an_out_that_holds_another_run_is_refused(fedul: Fedul, tmp_path: Path, options: str, complaint: str) -> None:
    refuses(fedul, tmp_path, f"train --out RUN {options}", complaint)


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_the_model(path: Path) -> None:
    shutil.copy(path.parents[1] / "model/weights.safetensors", path)


def name_another_format(path: Path) -> None:
    path.write_text(path.read_text().replace("fedul-", "other-"))


def name_a_later_version(path: Path) -> None:
    path.write_text(re.sub(r'"version": \d+', '"version": 99', path.read_text()))


def make_it_a_list(path: Path) -> None:
    path.write_text("[]")


def empty_its_sections(path: Path) -> None:
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "data": [], "training": 5}))


def swap_classes(path: Path) -> None:
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "classes": stored["classes"][::-1]}))


Damage = Callable[[Path], None]


@pytest.mark.parametrize(
    ("file", "damage", "complaint"),
    [
        ("checkpoint/state.safetensors", flip_a_byte, "altered since it was written"),
        ("checkpoint/state.safetensors", cut_in_half, "damaged or truncated"),
        ("checkpoint/state.safetensors", empty, "damaged or truncated"),
        ("checkpoint/state.safetensors", replace_by_the_model, "not a checkpoint"),
        ("config.json", cut_in_half, "not a readable JSON file"),
        ("config.json", name_another_format, "does not belong to a run of fedul"),
        ("config.json", name_a_later_version, "written by another version of fedul (format 99"),
        ("config.json", make_it_a_list, "does not belong to a run of fedul"),
        ("config.json", empty_its_sections, "config.json"),
    ],
)
def test_a_damaged_run_is_not_resumed(
    fedul: Fedul, tmp_path: Path, finished_run: Path, file: str, damage: Damage, complaint: str
) -> None:
    damage(finished_run / file)
    refuses(fedul, tmp_path, "train --out RUN --resume --rounds 4", complaint)


@pytest.mark.parametrize(
    ("file", "damage", "complaint"),
    [
        ("weights.safetensors", flip_a_byte, "altered since it was written"),
        ("weights.safetensors", cut_in_half, "damaged or truncated"),
        ("classifier.json", cut_in_half, "not a readable JSON file"),
        ("classifier.json", name_another_format, "not a classifier of fedul"),
        ("classifier.json", name_a_later_version, "has format version 99"),
        ("classifier.json", swap_classes, "was altered"),
    ],
)
def test_a_damaged_model_does_not_predict(
    fedul: Fedul, tmp_path: Path, finished_run: Path, file: str, damage: Damage, complaint: str
) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((3, 64)))
    damage(finished_run / "model" / file)
    refuses(fedul, tmp_path, "predict RUN rows.npy", complaint)


@pytest.mark.parametrize("run", ["missing", "RUN"])
def test_a_folder_without_a_classifier_does_not_predict(fedul: Fedul, tmp_path: Path, run: str) -> None:
    (tmp_path / "RUN").mkdir()
    np.save(tmp_path / "rows.npy", np.zeros((3, 64)))
    refuses(fedul, tmp_path, f"predict {run} rows.npy", "no classifier in it")


def save_archive_that_announces_a_terabyte(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("X.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (2**31, 64)})
            member.write(bytes(2**20))
        archive.infolist()[0].file_size = 2**40


def save_array_that_announces_a_terabyte(path: Path) -> None:
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**31, 64)})


def save_truncated_archive(path: Path) -> None:
    np.savez_compressed(path, X=np.random.default_rng(0).random((50, 64)))
    cut_in_half(path)


def save_pickle(path: Path) -> None:
    np.save(path, np.array([[Trap()] * 64], dtype=object), allow_pickle=True)


def save_archived_pickle(path: Path) -> None:
    np.savez(path, X=np.array([[Trap()] * 64], dtype=object))


def save_bare_pickle(path: Path) -> None:
    np.array([[Trap()] * 64], dtype=object).dump(path)


@pytest.mark.parametrize(
    ("file", "save", "complaint"),
    [
        ("missing.npy", lambda path: None, "there is no such file"),
        ("rows.xlsx", lambda path: path.write_bytes(b"PK"), "unknown kind of file"),
        ("rows.npy", lambda path: np.save(path, np.zeros((3, 63))), "this classifier takes (1, 8, 8)"),
        ("rows.npy", lambda path: np.save(path, np.zeros(64)), "one row for each case"),
        ("rows.npy", lambda path: np.save(path, np.full((3, 64), "a")), "give a table of numbers"),
        ("rows.npy", lambda path: np.save(path, np.full((3, 64), np.nan)), "row 1 gives no finite prediction"),
        ("rows.npy", lambda path: np.save(path, np.full((3, 64), 1e300)), "row 1 gives no finite prediction"),
        ("rows.npy", lambda path: path.write_bytes(b"garbage"), "not a readable NumPy file"),
        ("rows.npy", lambda path: path.write_bytes(b""), "not a readable NumPy file"),
        ("rows.npy", save_pickle, "not a readable NumPy file"),
        ("rows.npy", save_bare_pickle, "not a readable NumPy file"),
        ("rows.npy", save_array_that_announces_a_terabyte, "not a readable NumPy file"),
        ("rows.npz", save_archived_pickle, "not a readable NumPy file"),
        ("rows.npz", save_truncated_archive, "not a readable NumPy file"),
        ("rows.npz", save_archive_that_announces_a_terabyte, "rows.npz"),
        ("rows.npz", lambda path: np.savez(path, a=np.zeros((3, 64)), b=np.zeros(3)), "name the rows 'X'"),
        ("rows.csv", lambda path: path.write_text("1,2\n3,text\n"), "line 2: a cell is not a number"),
        ("rows.csv", lambda path: path.write_text("1,2\n3\n"), "line 2: 1 cells, the first row has 2"),
        ("rows.csv", lambda path: path.write_text("1,2\n3,4\n"), "this classifier takes (1, 8, 8)"),
        ("rows.csv", lambda path: path.write_text(""), "holds no rows"),
        ("rows.csv", lambda path: path.write_text("a,b\n"), "holds no rows"),
        ("rows.csv", lambda path: path.write_bytes(bytes(range(256))), "not a readable CSV file"),
        ("rows-idx3-ubyte", lambda path: path.write_bytes(b"\0\0\x08\x03\0"), "not a complete idx file"),
    ],
)
@pytest.mark.usefixtures("finished_run")
def test_rows_that_cannot_be_classified_are_refused(
    fedul: Fedul, tmp_path: Path, file: str, save: Damage, complaint: str
) -> None:
    save(tmp_path / file)
    refuses(fedul, tmp_path, f"predict RUN {file} --out table.csv", complaint)


@pytest.mark.parametrize(
    ("prior", "complaint"),
    [
        ("natural", "prior: 'natural' is not CLASS=SHARE"),
        ("0=0.5,1=0.5", "prior: no share for class '2'"),
        ("0=0.9,1=0.1,2=0.1,3=0.1,4=0.1,5=0.1,6=0.1,7=0.1,8=0.1,9=0.1", "prior: sums to 1.8"),
    ],
)
@pytest.mark.usefixtures("finished_run")
def test_a_wrong_prior_is_refused(fedul: Fedul, tmp_path: Path, prior: str, complaint: str) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((3, 64)))
    refuses(fedul, tmp_path, f"predict RUN rows.npy --prior {prior}", complaint)


def test_a_similar_command_is_suggested_once(fedul: Fedul) -> None:
    outcome = fedul("trian")
    assert (outcome.code, outcome.err) == (
        2,
        "fedul: No such command 'trian': did you mean 'train'? 'fedul --help' lists all.\n",
    )


def test_a_path_back_to_a_folder_in_use_is_refused(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    refuses(fedul, tmp_path, "example new/..", "exists")
