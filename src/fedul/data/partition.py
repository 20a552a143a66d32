"""Deals labelled research data out to clients and unlabeled sets, as the paper's benchmark does.

Lu et al., ICLR 2022, section 4.1 and appendix D. Rows for validation are split off before sets are formed; labels end
up in a `Truth`, beside the `Federation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from fedul import priors as prior_tools
from fedul.config import DataConfig
from fedul.data.class_mix import parse_prior
from fedul.data.priors_table import read_priors
from fedul.data.source import LabelledData
from fedul.errors import InputError
from fedul.federation import Federation, Rows, UnlabeledSets
from fedul.priors import Matrix
from fedul.randomness import numpy_generator
from fedul.truth import Labels, Study, Truth

Index = NDArray[np.int64]


def deal(data: LabelledData, config: DataConfig) -> Study:
    """A study: clients with unlabeled sets, and the truth of every row beside them."""
    data = _fewer_rows(data, config)
    classes, seed = len(data.classes), config.seed
    if config.clients * max(config.sets) > len(data.train_labels):  # before lists of that length are made
        raise InputError(
            f"{len(data.train_labels)} rows cannot fill {max(config.sets)} sets of each of {config.clients} clients; "
            "use fewer sets or clients."
        )
    names = [f"client-{c + 1}" for c in range(config.clients)]
    sets = config.sets if len(config.sets) > 1 else config.sets * config.clients
    given = _given_priors(config.priors, names, tuple(data.classes)) if config.priors else None

    # One permutation decides what is held out, so that no row is in a training set and in a held-out one.
    order = numpy_generator(seed, "validation").permutation(len(data.train_labels))
    held = round(config.validation * len(order))
    pools = {
        "train": split_clients(data.train_labels, order[held:], config),
        "held-out": split_clients(data.train_labels, order[:held], config),
    }
    clients, train_labels, held_labels = [], {}, {}
    for c, name in enumerate(names):
        if given is not None:
            drawn = given[name]
        else:
            drawn = prior_tools.sample(config.prior_recipe, sets[c], classes, numpy_generator(seed, "priors", name))
        dealt = deal_sets(data.train_labels, pools["train"][c], drawn, config, name, "train")
        train, realised = dealt.rows, dealt.shares
        if len(empty := np.flatnonzero(realised.sum(axis=1) == 0)):
            raise InputError(
                f"{name}: no row is left for set {empty[0] + 1}; use fewer sets or clients, or sets that overlap."
            )
        told = realised if config.prior_source == "realised" else drawn
        # A set is one mixture, and what is told of it holds for all its rows. Small sets come out far from what was
        # drawn: held-out rows dealt by that would belong to other sets, and ask for a far too high temperature.
        held_out = deal_sets(data.train_labels, pools["held-out"][c], told, config, name, "held-out").rows
        if config.prior_noise or config.noise_formula == "printed":
            noise = numpy_generator(seed, "noise", name)
            told = prior_tools.perturb(told, config.prior_noise, noise, formula=config.noise_formula)
        clients.append(UnlabeledSets(name, data.train_inputs, train, held_out, told))
        train_labels[name] = data.train_labels[train.index.numpy()]
        held_labels[name] = data.train_labels[held_out.index.numpy()]

    test, prior = _test_population(data, config)
    federation = Federation(clients, data.classes, prior, data.scaling)
    truth = Truth(
        test_inputs=data.test_inputs[torch.from_numpy(test)],
        test_labels=data.test_labels[test],
        test_clients=np.arange(len(test), dtype=np.int64) % config.clients,
        train_labels=train_labels,
        held_out_labels=held_labels,
    )
    return Study(federation, truth)


def _given_priors(file: str, clients: Sequence[str], classes: tuple[str, ...]) -> dict[str, Matrix]:
    """The priors of a table that names exactly these clients and classes."""
    table = read_priors(file)
    if sorted(table.classes) != sorted(classes):
        raise InputError(
            f"{file}: has the classes {', '.join(table.classes)}; the classes of the data are {', '.join(classes)}."
        )
    if sorted(table.clients) != sorted(clients):
        named = ", ".join(sorted(table.clients)) or "no client"
        raise InputError(f"{file}: priors for {named}, but the clients are {', '.join(clients)}.")
    order = [table.classes.index(name) for name in classes]
    return {name: np.stack([own.shares[order] for own in table.clients[name].values()]) for name in clients}


def _fewer_rows(data: LabelledData, config: DataConfig) -> LabelledData:
    """The data with as many training rows as asked for."""
    there = len(data.train_labels)
    if not config.rows:
        return data
    if config.rows > there:
        raise InputError(f"rows: {config.rows} of {there} training rows cannot be had; ask for fewer, or 0 for all.")
    chosen = np.sort(numpy_generator(config.seed, "rows").permutation(there)[: config.rows])
    inputs = data.train_inputs[torch.from_numpy(chosen)]
    return replace(data, train_inputs=inputs, train_labels=data.train_labels[chosen])


def split_clients(labels: Labels, rows: Index, config: DataConfig) -> list[Index]:
    """The rows each client gets, no row twice: equal shares (iid), or mixes with two majority classes a client."""
    if config.split == "iid":
        return [np.sort(part) for part in np.array_split(rows, config.clients)]
    classes = int(labels.max()) + 1
    remaining = [rows[labels[rows] == k] for k in range(classes)]
    parts = []
    for c in range(config.clients):
        mix = client_mix(config.split, c, classes, numpy_generator(config.seed, "client mix", c))
        taken = []
        for k in range(classes):
            # A class that runs out leaves later clients with less of it, as in the appendix's table of counts.
            count = int(mix[k] * (len(rows) // config.clients))
            taken.append(remaining[k][:count])
            remaining[k] = remaining[k][count:]
        parts.append(np.sort(np.concatenate(taken)))
    return parts


def client_mix(split: str, client: int, classes: int, generator: np.random.Generator) -> Matrix:
    """The class mix of a non-iid client: two majority classes (client 0 has classes 0 and 1), the rest minorities.

    `noniid` follows the appendix's counts, about 47 % for a majority and 0.6 % for a minority class of ten;
    `noniid-text` follows the text: a majority class has 15-25 %, a minority class less than 8 %.
    """
    majority = [(2 * client) % classes, (2 * client + 1) % classes]
    if split == "noniid":
        mix = generator.uniform(0.45, 0.55, classes)
        mix[majority] *= 80
        shares: Matrix = mix / mix.sum()
        return shares
    for _ in range(1000):
        mix = generator.uniform(0.9, 1.1, classes)
        mix[majority] = 0
        large = generator.uniform(0.15, 0.25, 2)
        mix *= (1 - large.sum()) / mix.sum()
        if mix.max() < 0.08:
            mix[majority] = large
            return mix
    raise InputError(f"split noniid-text: minority classes under 8 % cannot be had with {classes} classes; use noniid.")


@dataclass(frozen=True, eq=False)
class DealtSets:
    """Rows dealt into sets, and the class shares that came out."""

    rows: Rows
    shares: Matrix  # (M, K)


def deal_sets(labels: Labels, pool: Index, priors: Matrix, config: DataConfig, name: str, part: str) -> DealtSets:
    """Sets of equal size drawn from a client's pool by the priors, until a class of the pool runs out.

    Overlapping sets each draw from the whole pool, without replacement within a set; disjoint ones use it up.
    """
    sets, classes = priors.shape
    size = len(pool) // sets
    if size == 0 and len(pool):
        raise InputError(
            f"{name}: {len(pool)} {part} rows cannot fill {sets} sets; use fewer sets, fewer clients or more rows."
        )
    generator = numpy_generator(config.seed, part, name)
    by_class = _shuffled_classes(labels, pool, classes, generator)
    parts, numbers, shares = [pool[:0]], [pool[:0]], np.zeros((sets, classes))
    for m in range(sets):
        wanted = generator.multinomial(size, priors[m])
        available = np.array([len(rows) for rows in by_class])
        if config.prior_source == "drawn" and (wanted > available).any():
            k = int(np.argmax(wanted - available))
            raise InputError(
                f"prior-source drawn: {name} runs out of class {k} in set {m + 1} ({available[k]} {part} rows left, "
                f"{wanted[k]} wanted), so the drawn priors would be wrong; use realised ones, "
                f"{'more (smaller) sets' if config.sets_overlap else 'sets that overlap'}, or split iid."
            )
        counts = np.minimum(wanted, available)
        for k in np.flatnonzero(counts).tolist():  # nothing is drawn for the others: with small clients they are most
            if config.sets_overlap:
                parts.append(generator.choice(by_class[k], counts[k], replace=False))
            else:
                parts.append(by_class[k][: counts[k]])
                by_class[k] = by_class[k][counts[k] :]
        numbers.append(np.full(counts.sum(), m))
        shares[m] = counts / max(counts.sum(), 1)
    index = np.concatenate(parts).astype(np.int64, copy=False)
    return DealtSets(Rows(torch.from_numpy(index), torch.from_numpy(np.concatenate(numbers))), shares)


def _shuffled_classes(labels: Labels, pool: Index, classes: int, generator: np.random.Generator) -> list[Index]:
    """The rows of each class, in random order."""
    own = labels[pool]
    ends = np.cumsum(np.bincount(own, minlength=classes))
    parts = np.split(pool[np.argsort(own, kind="stable")], ends[: classes - 1])
    return [generator.permutation(rows) if len(rows) > 1 else rows for rows in parts]


def _test_population(data: LabelledData, config: DataConfig) -> tuple[Index, Matrix]:
    """Test rows drawn so that their class mix is the test prior, as many as there are."""
    counts = np.bincount(data.test_labels, minlength=len(data.classes))
    if config.test_prior == "natural":
        return np.arange(len(data.test_labels)), counts / counts.sum()
    prior = parse_prior(config.test_prior, tuple(data.classes), where="test-prior")
    prior = prior_tools.validate_test_prior(prior, data.classes, where="test-prior")
    total = np.floor((counts / prior).min() + 1e-9)
    if total < 1:
        absent = data.classes[int(np.argmin(counts / prior))]
        raise InputError(f"test-prior: there is no test row of class '{absent}'; use natural, or drop the class.")
    generator = numpy_generator(config.seed, "test")
    chosen = [
        generator.permutation(np.flatnonzero(data.test_labels == k))[: max(1, round(total * prior[k]))]
        for k in range(len(prior))
    ]
    return generator.permutation(np.concatenate(chosen)), prior
