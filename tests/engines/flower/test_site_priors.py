"""A site perturbs its class priors by its own setting, once for all runs, and every draw is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedul.core import UnlabeledSets
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.site.row_cache import read_row_cache
from fedul.engines.flower.site.site_priors import DRAWS, perturb_site, read_draws
from fedul.errors import InputError
from fedul.privacy.prior_noise import count_noise

from .test_faults import PRIORS, TABLE, hospitals, two_classes
from .wire import Wire


def hospitals_with_epsilon(folder: Path, epsilon: float) -> dict[int, Path]:
    files = hospitals(folder)
    for file in files.values():
        file.write_text(f"prior-epsilon = {epsilon}\n" + file.read_text())
    return files


def cached_clients(folder: Path) -> list[UnlabeledSets]:
    files = sorted((folder / "west" / "state").glob("*/rows.safetensors"), key=lambda file: file.stat().st_mtime_ns)
    return [found[0] for file in files if (found := read_row_cache(file, "west"))]


def test_a_site_draws_once_for_all_runs(tmp_path: Path) -> None:
    files = hospitals_with_epsilon(tmp_path, 1.0)
    for run in ("one", "two"):
        run_coordinator(Wire(files), two_classes(tmp_path, out=str(tmp_path / run)))
    first, second = cached_clients(tmp_path)
    assert np.array_equal(first.priors, second.priors)
    assert first.prior_scope.noise == count_noise(1.0, 2)
    draws = read_draws(tmp_path / "west" / "state")
    assert [draw.epsilon for draw in draws] == [1.0]
    exact = [float(each) for line in PRIORS.splitlines()[1:] for each in line.split(",")[-2:]]
    assert not np.isin(np.array(draws[0].priors), exact).any()


def test_other_priors_are_another_draw(tmp_path: Path) -> None:
    files = hospitals_with_epsilon(tmp_path, 1.0)
    run_coordinator(Wire(files), two_classes(tmp_path, out=str(tmp_path / "one")))
    (tmp_path / "west" / "rows.csv").write_text("".join(TABLE.splitlines(keepends=True)[:-1]))
    run_coordinator(Wire(files), two_classes(tmp_path, out=str(tmp_path / "two")))
    assert len(read_draws(tmp_path / "west" / "state")) == 2
    assert len(read_draws(tmp_path / "north" / "state")) == 1


def test_a_lost_record_is_an_error_and_not_a_new_draw(tmp_path: Path) -> None:
    files = hospitals_with_epsilon(tmp_path, 1.0)
    run_coordinator(Wire(files), two_classes(tmp_path, out=str(tmp_path / "one")))
    (client,) = cached_clients(tmp_path)
    state = tmp_path / "west" / "state"
    (state / DRAWS).write_text(json.dumps({"source": "x"}) + "\n")
    with pytest.raises(InputError, match="another draw would disclose more"):
        perturb_site(client, ("a", "b"), 1.0, state)


def test_without_the_setting_priors_are_exact(tmp_path: Path) -> None:
    run_coordinator(Wire(hospitals(tmp_path)), two_classes(tmp_path))
    (client,) = cached_clients(tmp_path)
    assert client.prior_scope.noise == 0
    assert not (tmp_path / "west" / "state" / DRAWS).exists()


def test_the_coordinator_does_not_decide_about_the_priors_of_sites(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"prior-epsilon: every site decides .* put it into its site.toml"):
        run_coordinator(Wire(hospitals(tmp_path)), two_classes(tmp_path, **{"prior-epsilon": 1.0}))
