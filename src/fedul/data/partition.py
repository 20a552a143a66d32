"""Partition of labelled research data into clients and unlabeled sets, as in the paper's benchmark.

Lu et al., ICLR 2022, section 4.1 and appendix D. Held-out rows are split off before sets are formed. They follow the
class priors and the relative sizes of the training sets; a client that lacks held-out rows of a class shares some of
the others. Labels become a `Truth`, apart from the `Federation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedul._utils.randomness import numpy_generator
from fedul.config import BenchmarkDataConfig
from fedul.core import Federation, Index, Labels, Matrix, PriorScope, Rows, Study, Truth, UnlabeledSets
from fedul.core import priors as prior_tools
from fedul.data.class_mix import parse_class_mix
from fedul.data.files.priors_table import read_priors
from fedul.data.files.tables import Table
from fedul.data.source import LabelledData
from fedul.errors import InputError


def partition(data: LabelledData, config: BenchmarkDataConfig, priors: Table | None = None) -> Study:
    """Return a study: clients with unlabeled sets, and the true label of every row.

    Parameters
    ----------
    data : LabelledData
        The data set.
    config : BenchmarkDataConfig
        How its rows are assigned to clients and sets.
    priors : Table, optional
        Class priors in memory, in place of the file that the configuration names.
    """
    data = _sample_rows(data, config)
    classes, seed = len(data.classes), config.seed
    if config.clients * max(config.sets) > len(data.train_labels):  # before allocating that many
        raise InputError(
            f"{len(data.train_labels)} rows cannot fill {max(config.sets)} sets of each of {config.clients} clients; "
            "use fewer sets or clients."
        )
    names = [f"client-{c + 1}" for c in range(config.clients)]
    sets = config.sets if len(config.sets) > 1 else config.sets * config.clients
    given = _read_given_priors(priors or config.priors, names, tuple(data.classes)) if config.priors else None

    # One permutation decides what is held out, so that no row is in a training set and in a held-out one.
    order = numpy_generator(seed, "validation").permutation(len(data.train_labels))
    held = round(config.held_out * len(order))
    held_out_pools, train_pools = (split_clients(data.train_labels, rows, config) for rows in np.split(order, [held]))
    clients, train_labels, held_labels = [], {}, {}
    for c, name in enumerate(names):
        generator = numpy_generator(seed, "priors", name)
        drawn = given[name] if given else prior_tools.sample_priors(config.prior_recipe, sets[c], classes, generator)
        count = len(drawn)
        sizes = np.full(count, _set_size(train_pools[c], count, name, "train"))
        train, realised = sample_sets(data.train_labels, train_pools[c], drawn, sizes, config, name, "train")
        if len(empty := np.flatnonzero(realised.sum(axis=1) == 0)):
            raise InputError(
                f"{name}: no row is left for set {empty[0] + 1}; use fewer sets or clients, or overlapping sets."
            )
        known = realised if config.prior_source == "realised" else drawn
        # Held-out rows must follow what training states: the known priors, and the share of the rows in each set. A
        # small set, or one whose classes ran out, deviates much from the drawn priors; held-out rows sampled with those
        # would belong to other sets, and give a far too high temperature.
        sizes = _relative_sizes(_set_size(held_out_pools[c], count, name, "held-out") * count, train, count)
        pool, reserve = held_out_pools[c], order[:held][~np.isin(order[:held], held_out_pools[c])]
        held_out, _ = sample_sets(data.train_labels, pool, known, sizes, config, name, "held-out", reserve)
        counted = config.prior_source == "realised"
        if config.prior_noise or config.noise_formula == "printed":
            counted = False
            noise = numpy_generator(seed, "noise", name)
            known = prior_tools.perturb_priors(known, config.prior_noise, noise, formula=config.noise_formula)
        scope = PriorScope("train" if counted else "population")
        clients.append(UnlabeledSets(name, data.train_inputs, train, held_out, known, prior_scope=scope))
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


def _read_given_priors(source: str | Table, clients: Sequence[str], classes: tuple[str, ...]) -> dict[str, Matrix]:
    """Return the priors of a table that names exactly these clients and classes."""
    table = read_priors(source)
    if sorted(table.classes) != sorted(classes):
        raise InputError(
            f"{table.source}: has the classes {', '.join(table.classes)}; the classes of the data are "
            f"{', '.join(classes)}."
        )
    if sorted(table.clients) != sorted(clients):
        named = ", ".join(sorted(table.clients)) or "no client"
        raise InputError(f"{table.source}: has priors for {named}, but the clients are {', '.join(clients)}.")
    order = [table.classes.index(name) for name in classes]
    return {name: np.stack([own.shares[order] for own in table.clients[name].values()]) for name in clients}


def _sample_rows(data: LabelledData, config: BenchmarkDataConfig) -> LabelledData:
    """Return the data with the requested number of training rows."""
    available = len(data.train_labels)
    if not config.rows:
        return data
    if config.rows > available:
        raise InputError(f"rows: there are {available} training rows, not {config.rows}; use fewer, or 0 for all.")
    chosen = np.sort(numpy_generator(config.seed, "rows").permutation(available)[: config.rows])
    inputs = data.train_inputs[torch.from_numpy(chosen)]
    return replace(data, train_inputs=inputs, train_labels=data.train_labels[chosen])


def split_clients(labels: Labels, rows: Index, config: BenchmarkDataConfig) -> list[Index]:
    """Return the rows of each client, without overlap: equal shares (iid), or with two majority classes per client."""
    if config.split == "iid":
        return [np.sort(part) for part in np.array_split(rows, config.clients)]
    classes = int(labels.max()) + 1
    remaining = [rows[labels[rows] == k] for k in range(classes)]
    parts = []
    for c in range(config.clients):
        mix = client_mix(config.split, c, classes, numpy_generator(config.seed, "client mix", c))
        taken = []
        for k in range(classes):
            # If a class is exhausted, later clients get fewer of its rows, as in the appendix's table of counts.
            count = int(mix[k] * (len(rows) // config.clients))
            taken.append(remaining[k][:count])
            remaining[k] = remaining[k][count:]
        parts.append(np.sort(np.concatenate(taken)))
    return parts


def client_mix(split: str, client: int, classes: int, generator: np.random.Generator) -> Matrix:
    """Return the class mix of a non-iid client: two majority classes (0 and 1 for client 0), the others minorities.

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
    raise InputError(
        f"split noniid-text: minority classes under 8 % are impossible with {classes} classes; use noniid."
    )


def sample_sets(
    labels: Labels,
    pool: Index,
    priors: Matrix,
    sizes: Index,
    config: BenchmarkDataConfig,
    name: str,
    part: str,
    reserve: Index | None = None,
) -> tuple[Rows, Matrix]:
    """Sample sets from a client's pool with the priors, until a class of the pool is exhausted.

    Overlapping sets each draw from the whole pool, without replacement within a set; disjoint sets remove
    their rows from it.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Classes of all rows.
    pool : ndarray
        Rows of the client.
    priors : ndarray of shape (M, K)
        Class priors of the sets.
    sizes : ndarray of shape (M,)
        Sizes of the sets.
    config : BenchmarkDataConfig
        Whether sets overlap, and the seed.
    name, part : str
        The client and the kind of rows, for the generator and for messages.
    reserve : ndarray, optional
        Rows in random order that are used where a class of the pool is exhausted.

    Returns
    -------
    rows : Rows
        The sampled rows and their sets.
    shares : ndarray of shape (M, K)
        The realised class shares of the sets.
    """
    sets, classes = priors.shape
    generator = numpy_generator(config.seed, part, name)
    by_class = _shuffled_classes(labels, pool, classes, generator)
    reserve = pool[:0] if reserve is None else reserve
    parts, numbers, shares = [pool[:0]], [pool[:0]], np.zeros((sets, classes))
    for m in range(sets):
        wanted = generator.multinomial(sizes[m], priors[m])
        for k in np.flatnonzero(wanted > [len(rows) for rows in by_class]).tolist():
            spare = reserve[labels[reserve] == k][: wanted[k] - len(by_class[k])]
            by_class[k] = np.concatenate([by_class[k], spare])
            reserve = reserve[~np.isin(reserve, spare)]
        available = np.array([len(rows) for rows in by_class])
        if config.prior_source == "drawn" and (wanted > available).any():
            k = int(np.argmax(wanted - available))
            raise InputError(
                f"prior-source drawn: {name} runs out of class {k} in set {m + 1} ({available[k]} {part} rows left, "
                f"{wanted[k]} wanted), so the drawn priors would be wrong; use realised ones, "
                f"{'more (smaller) sets' if config.sets_overlap else 'overlapping sets'}, or split iid."
            )
        counts = np.minimum(wanted, available)
        for k in np.flatnonzero(counts).tolist():  # only the classes that are drawn: few, for small clients
            if config.sets_overlap:
                parts.append(generator.choice(by_class[k], counts[k], replace=False))
            else:
                parts.append(by_class[k][: counts[k]])
                by_class[k] = by_class[k][counts[k] :]
        numbers.append(np.full(counts.sum(), m))
        shares[m] = counts / max(counts.sum(), 1)
    index = np.concatenate(parts).astype(np.int64, copy=False)
    return Rows(torch.from_numpy(index), torch.from_numpy(np.concatenate(numbers))), shares


def _set_size(pool: Index, sets: int, name: str, part: str) -> int:
    """Return the size of each set of a pool, where all have the same."""
    if len(pool) and len(pool) < sets:
        raise InputError(
            f"{name}: {len(pool)} {part} rows cannot fill {sets} sets; use fewer sets, fewer clients or more rows."
        )
    return len(pool) // sets


def _relative_sizes(total: int, like: Rows, sets: int) -> Index:
    """Return sizes (M,) that add up to `total`, in the proportions of the sets of other rows."""
    ends = np.cumsum(np.bincount(like.sets.numpy(), minlength=sets))
    sizes: Index = np.diff(np.rint(total * ends / ends[-1]).astype(np.int64), prepend=0)
    return sizes


def _shuffled_classes(labels: Labels, pool: Index, classes: int, generator: np.random.Generator) -> list[Index]:
    """Return the rows of each class, in random order."""
    own = labels[pool]
    ends = np.cumsum(np.bincount(own, minlength=classes))
    parts = np.split(pool[np.argsort(own, kind="stable")], ends[: classes - 1])
    return [generator.permutation(rows) if len(rows) > 1 else rows for rows in parts]


def _test_population(data: LabelledData, config: BenchmarkDataConfig) -> tuple[Index, Matrix]:
    """Return the largest sample of test rows whose class mix is the test prior, and that prior."""
    counts = np.bincount(data.test_labels, minlength=len(data.classes))
    if config.test_prior == "natural":
        return np.arange(len(data.test_labels)), counts / counts.sum()
    prior = parse_class_mix(config.test_prior, tuple(data.classes), where="test-prior")
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
