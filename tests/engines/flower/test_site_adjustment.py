"""The adjustment of a site is made there, stays there, and is the one of a run in process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedul
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.site.site_adjustment import with_site_state
from fedul.engines.flower.site.site_data import SiteData
from fedul.errors import InputError

from .test_faults import PRIORS, TABLE, hospitals, two_classes
from .test_parity import weights
from .wire import Wire

OLDER = TABLE.replace("\n2", "\n7")


def test_a_run_with_adjusted_sites_is_the_run_in_process(tmp_path: Path) -> None:
    sites = hospitals(tmp_path, table=OLDER)
    run = run_coordinator(Wire(sites), two_classes(tmp_path, **{"site-adjustment": True}))
    assert run.classifier.site_adjustments is None
    rows = [
        f"{name},{line}\n"
        for name, text in (("north", TABLE), ("south", TABLE), ("west", OLDER))
        for line in text.splitlines()[1:]
    ]
    (tmp_path / "all.csv").write_text("client,age,smoker,set\n" + "".join(rows))
    (tmp_path / "all-priors.csv").write_text(PRIORS)
    study = fedul.load(tmp_path / "all.csv", tmp_path / "all-priors.csv", site_adjustment="on", test_prior="uniform")
    expected = fedul.train(study, method="fedul", rounds=1)
    here, there = weights(run), weights(expected)
    assert float((here - there).norm() / there.norm()) < 1e-5
    own = with_site_state(run.classifier, tmp_path / "west" / "state")
    new = tmp_path / "west" / "rows.csv"
    found, other = own.predict_proba(new), expected.classifier.predict_proba(new, client="west")
    assert_allclose(found, other, atol=1e-4)
    assert np.abs(found - run.classifier.predict_proba(new)).max() > 1e-3


def test_a_state_folder_without_the_adjustment_is_refused(tmp_path: Path) -> None:
    run = run_coordinator(Wire(hospitals(tmp_path)), two_classes(tmp_path))
    with pytest.raises(InputError, match="has no adjustment for this classifier"):
        with_site_state(run.classifier, tmp_path / "west" / "state")


def test_a_site_cannot_choose_to_adjust_by_itself(tmp_path: Path) -> None:
    file = hospitals(tmp_path)[1]
    file.write_text(file.read_text() + 'site-adjustment = "auto"\n')
    with pytest.raises(InputError, match="is set at the coordinator, for all sites"):
        SiteData.read(str(file))
