"""The app folder, the settings file of a site, certificates and keys."""

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

from fedul.config import BenchmarkDataConfig
from fedul.engines.flower.deploy.app_folder import write_app_folder
from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.server.coordinator import read_settings
from fedul.engines.flower.site.site_data import SiteData
from fedul.errors import EnvironmentFailure, InputError


@pytest.fixture
def project(tmp_path: Path) -> dict[str, Any]:
    given = {"classes": ("flu", "cold"), "out": "/srv/run", "rounds": 7, "round-seconds": 9.0}
    write_app_folder(tmp_path / "lungs", given)
    found: dict[str, Any] = tomllib.loads((tmp_path / "lungs" / "pyproject.toml").read_text())
    return found


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_flower_accepts_the_folder_as_an_app(tmp_path: Path, project: dict[str, Any]) -> None:
    config, warnings = load_and_validate(tmp_path / "lungs" / "pyproject.toml")
    assert warnings == []
    assert config["project"]["name"] == "lungs"
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(tmp_path / "lungs"))) as sent:
        names = {name for name in sent.namelist() if not name.startswith(".info/")}
    # The settings of a site are not sent.
    assert names == {"pyproject.toml", *(f"federation/{name}.py" for name in ("__init__", "server_app", "client_app"))}


def test_the_folder_has_all_settings_with_the_given_values(project: dict[str, Any]) -> None:
    config, training = read_settings(project["tool"]["flwr"]["app"]["config"])
    assert (config.classes, config.out, config.sites, config.round_seconds) == (("flu", "cold"), "/srv/run", 2, 9.0)
    assert (training.rounds, training.algorithm_name, training.loss) == (7, "fedavg", None)


def test_the_readme_states_the_settings_of_the_folder(tmp_path: Path, project: dict[str, Any]) -> None:
    readme = (tmp_path / "lungs" / "README.md").read_text()
    assert "a run waits for 2 sites and writes to `/srv/run`.\nThe classes are: flu, cold." in readme
    assert "    flwr run . --stream\n" in readme
    assert "{" not in readme


def test_the_readme_of_a_folder_without_classes_asks_for_them(tmp_path: Path) -> None:
    write_app_folder(tmp_path / "lungs", {"sites": 3, "out": "/srv/run"})
    readme = (tmp_path / "lungs" / "README.md").read_text()
    assert "Fill in `classes` in `pyproject.toml`. With its other settings, a run waits for 3 sites" in readme
    assert "flu" not in readme


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown setting 'rouns': did you mean 'rounds'"):
        write_app_folder(tmp_path / "lungs", {"rouns": 3})
    assert not (tmp_path / "lungs").exists()


@pytest.mark.parametrize("options", [["earliest=2", "latest=9"], {"earliest": 2, "latest": 9}])
def test_several_options_of_a_method_are_written(tmp_path: Path, options: Any) -> None:
    given = {"classes": "flu,cold", "out": "/srv/run", "method": "fedul-refined", "method_option": options}
    write_app_folder(tmp_path / "lungs", given)
    stored = tomllib.loads((tmp_path / "lungs" / "pyproject.toml").read_text())
    _, training = read_settings(stored["tool"]["flwr"]["app"]["config"])
    assert training.method_option == {"earliest": 2, "latest": 9}


def test_paths_in_a_site_file_are_relative_to_it_in_either_spelling(tmp_path: Path) -> None:
    for name in ("data-dir", "data_dir"):
        (tmp_path / "site.toml").write_text(f'name = "north"\n[data]\ndata = "digits"\n{name} = "here"\n')
        data = SiteData.read(str(tmp_path / "site.toml")).data
        assert isinstance(data, BenchmarkDataConfig)
        assert data.data_dir == str(tmp_path / "here")


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, project: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="exists and is not empty; choose another folder"):
        write_app_folder(tmp_path / "lungs", {})


def test_the_template_of_a_site_file_names_the_missing_table(tmp_path: Path, project: dict[str, Any]) -> None:
    data = SiteData.read(str(tmp_path / "lungs" / "site.toml"))
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/lungs/patients.csv: there is no such file")):
        data.signature()


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
def test_wrong_settings_of_a_site_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=problem):
        SiteData.read(str(file)).signature()


def test_a_certificate_covers_its_hosts_and_loopback_and_its_authority_leaves_no_key(
    tmp_path: Path,
) -> None:
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
def test_a_certificate_is_made_for_every_valid_host_name(tmp_path: Path, host: str) -> None:
    make_keys(tmp_path, hosts=[host])
    server = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert host in names.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize("host", ["", "a b", "a..b", "-a", "a/b", "ä.org", "a" * 64, ".".join(["a" * 60] * 5)])
def test_an_invalid_host_name_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="is neither a host name nor an address"):
        make_keys(tmp_path, hosts=[host])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("hosts", "sites", "problem"),
    [
        ([], ["north", "there"], "there.key: exists"),
        (["localhost"], ["north", "a/b"], "cannot be a file name"),
        (["localhost"], ["north", "there"], "there.key: exists"),
        ([], ["north", "north"], "north.key: would be written twice"),
        (["localhost"], ["server"], "server.key: would be written twice"),
        (["local host"], ["north"], "is neither a host name nor an address"),
    ],
)
def test_either_all_keys_are_made_or_none(tmp_path: Path, hosts: list[str], sites: list[str], problem: str) -> None:
    make_keys(tmp_path, sites=["there"])
    with pytest.raises(InputError, match=problem):
        make_keys(tmp_path, hosts, sites)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["there.key", "there.pub"]


def test_keys_that_cannot_be_written_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match=r"cannot write to .*file: "):
        make_keys(tmp_path / "file", sites=["north"])

    def full(path: Path, *others: int) -> int:
        if str(path).endswith("south.key"):
            raise OSError(28, "No space left on device")
        return opening(path, *others)

    opening = os.open
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(EnvironmentFailure, match="No space left on device; nothing is written"):
        make_keys(tmp_path / "keys", sites=["north", "south"])
    assert list((tmp_path / "keys").iterdir()) == []


def test_secret_keys_are_readable_by_their_owner_only_and_not_overwritten(tmp_path: Path) -> None:
    make_keys(tmp_path, sites=["north"])
    secret = tmp_path / "north.key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    key = load_ssh_private_key(secret.read_bytes(), None)
    assert key.public_key() == load_ssh_public_key((tmp_path / "north.pub").read_bytes())
    before = secret.read_bytes()
    with pytest.raises(InputError, match="exists; delete it first"):
        make_keys(tmp_path, sites=["north"])
    assert secret.read_bytes() == before


@pytest.mark.parametrize("site", ["", "../north", "a/b", ".north", "a\nb", "a" * 300])
def test_a_site_name_that_is_no_file_name_is_refused(tmp_path: Path, site: str) -> None:
    with pytest.raises(InputError, match="cannot be a file name"):
        make_keys(tmp_path, sites=[site])
    assert list(tmp_path.iterdir()) == []
