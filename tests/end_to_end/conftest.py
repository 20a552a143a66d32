from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ..data_files import TRAIN_HOSPITALS, write_hospitals
from .browser import Page, browser
from .command import CANONICAL, Fedul, Outcome, Warm, run


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    commands = Warm(tmp_path_factory.mktemp("warm"))
    yield commands
    commands.close()


@pytest.fixture
def fedul(warm: Warm, tmp_path: Path) -> Fedul:
    return partial(warm.run, at=tmp_path)


@pytest.fixture
def fresh_fedul(tmp_path: Path) -> Fedul:
    return partial(run, at=tmp_path)


@pytest.fixture(scope="session")
def canonical(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("canonical")
    return folder / "RUN", run(CANONICAL, folder)


@pytest.fixture
def finished_run(canonical: tuple[Path, Outcome], tmp_path: Path) -> Path:
    return Path(shutil.copytree(canonical[0], tmp_path / "RUN"))


@pytest.fixture(scope="session")
def hospitals(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("hospitals")
    write_hospitals(folder)
    return folder, warm.run(TRAIN_HOSPITALS, folder)


@pytest.fixture
def trained_hospitals(hospitals: tuple[Path, Outcome], tmp_path: Path) -> Path:
    return Path(shutil.copytree(hospitals[0], tmp_path, dirs_exist_ok=True))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
