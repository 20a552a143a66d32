"""The files that a coordinator and a site start from."""

from __future__ import annotations

import io
import os
import re
import ssl
import stat
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from fedul.config import DataConfig
from fedul.engines.flower.coordinator import read_settings
from fedul.engines.flower.folder import new_folder
from fedul.engines.flower.keys import make_keys
from fedul.engines.flower.own import Own
from fedul.errors import InputError, WorldError


@pytest.fixture
def project(tmp_path: Path) -> dict[str, Any]:
    given = {"classes": ("flu", "cold"), "out": "/srv/run", "rounds": 7, "round-seconds": 9.0}
    new_folder(tmp_path / "lungs", given)
    found: dict[str, Any] = tomllib.loads((tmp_path / "lungs" / "pyproject.toml").read_text())
    return found


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_flower_takes_the_folder_for_an_app(tmp_path: Path, project: dict[str, Any]) -> None:
    config, warnings = load_and_validate(tmp_path / "lungs" / "pyproject.toml")
    assert warnings == []
    assert config["project"]["name"] == "lungs"
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(tmp_path / "lungs"))) as sent:
        names = {name for name in sent.namelist() if not name.startswith(".info/")}
    # And no settings of a site that stand beside them.
    assert names == {"pyproject.toml", *(f"federation/{name}.py" for name in ("__init__", "server_app", "client_app"))}


def test_all_settings_are_in_the_folder_and_those_given_are_kept(project: dict[str, Any]) -> None:
    config, training = read_settings(project["tool"]["flwr"]["app"]["config"])
    assert (config.classes, config.out, config.sites, config.round_seconds) == (("flu", "cold"), "/srv/run", 2, 9.0)
    assert (training.rounds, training.algorithm, training.loss) == (7, "fedavg", None)


def test_the_readme_names_what_the_folder_was_made_with(tmp_path: Path, project: dict[str, Any]) -> None:
    readme = (tmp_path / "lungs" / "README.md").read_text()
    assert "a run waits for 2 sites and leaves its result in `/srv/run`.\nThe classes are: flu, cold." in readme
    assert "    flwr run . --stream\n" in readme
    assert "{" not in readme


def test_the_readme_of_a_folder_without_classes_says_that_they_are_missing(tmp_path: Path) -> None:
    new_folder(tmp_path / "lungs", {"sites": 3, "out": "/srv/run"})
    readme = (tmp_path / "lungs" / "README.md").read_text()
    assert "Fill in `classes` in `pyproject.toml`. As it stands there, a run waits for 3 sites" in readme
    assert "flu" not in readme


def test_a_setting_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown setting 'rouns': did you mean 'rounds'"):
        new_folder(tmp_path / "lungs", {"rouns": 3})
    assert not (tmp_path / "lungs").exists()


@pytest.mark.parametrize("options", [["earliest=2", "latest=9"], {"earliest": 2, "latest": 9}])
def test_options_of_a_method_are_kept_however_many(tmp_path: Path, options: Any) -> None:
    given = {"classes": "flu,cold", "out": "/srv/run", "method": "fedul-refined", "method_option": options}
    new_folder(tmp_path / "lungs", given)
    stored = tomllib.loads((tmp_path / "lungs" / "pyproject.toml").read_text())
    _, training = read_settings(stored["tool"]["flwr"]["app"]["config"])
    assert training.method_option == {"earliest": 2, "latest": 9}


def test_paths_of_a_site_are_taken_from_its_file_by_either_spelling(tmp_path: Path) -> None:
    for name in ("data-dir", "data_dir"):
        (tmp_path / "site.toml").write_text(f'name = "north"\n[data]\ndata = "digits"\n{name} = "here"\n')
        data = Own.read(str(tmp_path / "site.toml")).data
        assert isinstance(data, DataConfig)
        assert data.data_dir == str(tmp_path / "here")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, project: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is there already and not empty; choose another folder"):
        new_folder(tmp_path / "lungs", {})


def test_the_site_file_says_what_is_missing_and_where(tmp_path: Path, project: dict[str, Any]) -> None:
    own = Own.read(str(tmp_path / "lungs" / "site.toml"))
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/lungs/patients.csv: there is no such file")):
        own.form()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = "north"', "needs a part \\[data\\]"),
        ('nam = "north"\n[data]\ndata = "digits"', "did you mean 'name'"),
        ('name = "north"\nmin_row = 3\n[data]\ndata = "digits"', "unknown setting 'min-row': did you mean 'min-rows'"),
        ('name = "north"\n[data]\ndata = "digits"\nset-colum = "x"', "did you mean 'set-column'"),
        ('name = ""\n[data]\ndata = "digits"', "name: expected text"),
        ('name = "north"\nmin-rows = 0\n[data]\ndata = "digits"', "min-rows: must be at least 1"),
        ('name = "north"\n[data]\ndata = "digit"', "digit"),
        ("name = ", "not a readable TOML file"),
    ],
)
def test_settings_of_a_site_that_cannot_work_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=problem):
        Own.read(str(file)).form()


def test_a_certificate_is_for_its_hosts_and_loopback_and_its_authority_signs_nothing_more(tmp_path: Path) -> None:
    make_keys(tmp_path, hosts=["coordinator.example.org", "127.0.0.2"])
    server = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["coordinator.example.org", "localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.2", "127.0.0.1"]
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    assert len(context.get_ca_certs()) == 1
    server.verify_directly_issued_by(x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes()))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ca.pem", "server.key", "server.pem"]


@pytest.mark.parametrize("host", [f"{'a' * 60}.{'b' * 60}.example.org", "*.example.org", "a"])
def test_a_host_may_have_any_name_that_hosts_have(tmp_path: Path, host: str) -> None:
    make_keys(tmp_path, hosts=[host])
    server = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert host in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("host", ["", "a b", "a..b", "-a", "a/b", "ä.org", "a" * 64, ".".join(["a" * 60] * 5)])
def test_what_no_host_is_called_gets_no_certificate(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="is neither a name nor an address"):
        make_keys(tmp_path, hosts=[host])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("hosts", "sites", "problem"),
    [
        ([], ["north", "there"], "there.key: is there already"),
        (["localhost"], ["north", "a/b"], "cannot be a file name"),
        (["localhost"], ["north", "there"], "there.key: is there already"),
        ([], ["north", "north"], "north.key: would be written twice"),
        (["localhost"], ["server"], "server.key: would be written twice"),
        (["local host"], ["north"], "is neither a name nor an address"),
    ],
)
def test_keys_are_made_all_or_none(tmp_path: Path, hosts: list[str], sites: list[str], problem: str) -> None:
    make_keys(tmp_path, sites=["there"])
    with pytest.raises(InputError, match=problem):
        make_keys(tmp_path, hosts, sites)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["there.key", "there.pub"]


def test_keys_that_cannot_be_written_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError, match=r"could not write into .*file: "):
        make_keys(tmp_path / "file", sites=["north"])

    def full(path: Path, *others: int) -> int:
        if str(path).endswith("south.key"):
            raise OSError(28, "No space left on device")
        return opening(path, *others)

    opening = os.open
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(WorldError, match="No space left on device; nothing is made"):
        make_keys(tmp_path / "keys", sites=["north", "south"])
    assert list((tmp_path / "keys").iterdir()) == []


def test_secret_keys_are_their_owners_alone_and_are_not_written_over(tmp_path: Path) -> None:
    make_keys(tmp_path, sites=["north"])
    secret = tmp_path / "north.key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    key = load_ssh_private_key(secret.read_bytes(), None)
    assert key.public_key() == load_ssh_public_key((tmp_path / "north.pub").read_bytes())
    before = secret.read_bytes()
    with pytest.raises(InputError, match="is there already; delete it first"):
        make_keys(tmp_path, sites=["north"])
    assert secret.read_bytes() == before


@pytest.mark.parametrize("site", ["", "../north", "a/b", ".north", "a\nb", "a" * 300])
def test_a_site_whose_name_is_no_file_name_gets_no_key(tmp_path: Path, site: str) -> None:
    with pytest.raises(InputError, match="cannot be a file name"):
        make_keys(tmp_path, sites=[site])
    assert list(tmp_path.iterdir()) == []
