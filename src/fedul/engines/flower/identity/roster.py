"""Roster of a federation: the public key of every site, by name.

The sites and the coordinator each hold this file. They exchange it without the coordinator's help, by a shared folder
or by mail, and compare its fingerprint by telephone: then no coordinator can add sites that it made up, or replace a
key.
"""

from __future__ import annotations

import json
import os
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedul._utils.files import write_bytes
from fedul.engines.flower.identity.keys import MAX_FILE_BYTES, IdentityError, IdentityKey, PublicKey, fingerprint
from fedul.engines.flower.settings import SiteConfig, is_valid_site_name
from fedul.errors import InputError

HEADER = """\
# Roster of a federation: the public key of every site. Every site and the coordinator hold the same file. Compare it by
# telephone: 'fedul federation roster show FILE' prints one fingerprint for the whole file.

[sites]
"""


@dataclass(frozen=True, eq=False)
class Roster:
    """Public keys of the sites of a federation.

    Parameters
    ----------
    keys : mapping of str to PublicKey
        Key of each site, by its name.
    """

    keys: Mapping[str, PublicKey]

    @classmethod
    def read(cls, path: str | Path) -> Roster:
        """Read a roster file.

        Raises
        ------
        InputError
            If the file is missing or damaged, other accounts can write to it, or a name or key occurs twice.
        """
        file = Path(path)
        try:
            stored = tomllib.loads(_read_trusted(file).decode())
        except InputError:
            raise
        except ValueError as problem:
            raise InputError(f"{file}: not a readable roster ({problem}); get another copy of it.") from None
        sites = stored.get("sites")
        if stored.keys() != {"sites"} or not isinstance(sites, dict) or not sites:
            raise InputError(f"{file}: a roster has one part [sites] with a line NAME = KEY for each site; correct it.")
        for name, line in sites.items():
            if not isinstance(line, str):
                raise InputError(f"{file}: the key of '{name}' is not text; get another copy of the file.")
        roster = cls({name: PublicKey.parse(line, f"{file}: '{name}'") for name, line in sites.items()})
        roster._check(str(file))
        return roster

    @classmethod
    def of_files(cls, files: Sequence[Path]) -> Roster:
        """Return a roster of public key files; `north.pub` has the key of the site 'north'."""
        keys: dict[str, PublicKey] = {}
        for file in files:
            name = file.name.removesuffix(".pub")
            if name == file.name:
                raise InputError(f"{file}: is not a public key file NAME.pub, where NAME is the name of the site.")
            if name in keys:
                raise InputError(f"{file}: another file is for site '{name}' too; give one file for each site.")
            keys[name] = read_public_key(file)
        roster = cls(keys)
        roster._check("the roster")
        return roster

    def write(self, file: Path) -> None:
        """Write the roster to a new file."""
        if file.exists():
            raise InputError(f"{file}: exists; delete it first to make a new one.")
        lines = [f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(self.keys[name].text)}" for name in self.names]
        write_bytes(file, (HEADER + "\n".join(lines) + "\n").encode())

    @property
    def names(self) -> list[str]:
        """Names of the sites, sorted."""
        return sorted(self.keys)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all names and keys, whatever their order and the comments in the file."""
        return fingerprint(json.dumps([(name, self.keys[name].text) for name in self.names]).encode())

    def verify(self, name: str, context: str, payload: bytes, signature: bytes) -> None:
        """Check that a site has signed a payload.

        Parameters
        ----------
        name : str
            Name of the site.
        context : str
            Purpose of the signature, as in `IdentityKey.sign`.
        payload, signature : bytes
            What was signed, and the signature.

        Raises
        ------
        IdentityError
            If the site is not in the roster, or another key signed, or something else was signed.
        """
        if name not in self.keys:
            raise IdentityError(f"'{name[:100]}' is not in the roster")
        if not self.keys[name].is_signature(context, payload, signature):
            raise IdentityError(f"the signature is not that of the key that the roster has for '{name}'")

    def _check(self, where: str) -> None:
        """Refuse names that are not valid or look alike, and keys that occur twice."""
        names: dict[str, str] = {}
        owners: dict[PublicKey, str] = {}
        for name, key in self.keys.items():
            if not is_valid_site_name(name):
                raise InputError(f"{where}: {name[:100]!r} cannot be a name; use at most 100 printable characters.")
            other = names.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)
            if other != name:
                raise InputError(f"{where}: '{other}' and '{name}' look alike; give the sites different names.")
            if owners.setdefault(key, name) != name:
                raise InputError(f"{where}: '{owners[key]}' and '{name}' have the same key; each site makes its own.")


@dataclass(frozen=True, eq=False)
class SiteIdentity:
    """Name and key of a site, and the roster that it holds.

    Parameters
    ----------
    name : str
        Name of the site.
    key : IdentityKey
        Its private key.
    roster : Roster or None
        Keys of all sites; None if the site holds none, and so cannot verify others.
    """

    name: str
    key: IdentityKey
    roster: Roster | None

    @classmethod
    def read(cls, config: SiteConfig) -> SiteIdentity | None:
        """Return the identity in the settings of a site; None if they name no key.

        Raises
        ------
        InputError
            If a file cannot be used, or the roster has no key or another one for this site.
        """
        if config.key is None:
            if config.roster is not None:
                raise InputError("roster: is of use only with the key of this site; add key to the settings.")
            return None
        key, roster = IdentityKey.read(config.key), None if config.roster is None else Roster.read(config.roster)
        if roster is not None and config.name not in roster.keys:
            raise InputError(f"{config.roster}: has no site '{config.name}'; use the name that it has, or correct it.")
        if roster is not None and roster.keys[config.name] != key.public:
            raise InputError(
                f"{config.roster}: has the key {roster.keys[config.name].fingerprint} for '{config.name}', and "
                f"{config.key} is {key.public.fingerprint}; use the key of this site, or let all renew the roster."
            )
        return cls(config.name, key, roster)

    def sign(self, context: str, payload: bytes) -> bytes:
        """Return the signature of this site over a payload in a context."""
        return self.key.sign(context, payload)


def read_public_key(file: Path) -> PublicKey:
    """Read a `.pub` file; InputError if it is missing or damaged."""
    try:
        text = file.read_bytes()[:MAX_FILE_BYTES].decode()
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file; correct the path.") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"{file}: not a readable public key ({problem}); let its site send it again.") from None
    return PublicKey.parse(text, str(file))


def _read_trusted(file: Path) -> bytes:
    """Return the content of a file that other accounts cannot change, because it decides who is trusted."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if hasattr(os, "geteuid") and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022):
                raise InputError(
                    f"{file}: other accounts can change this roster; give it to this account, with mode 644."
                )
            return opened.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        raise InputError(
            f"{file}: there is no such file; make it with 'fedul federation roster new', or correct the path."
        ) from None
    except OSError as problem:
        raise InputError(f"{file}: cannot be read ({problem.strerror or problem}); correct the path.") from None
