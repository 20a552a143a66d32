"""Differential privacy of clients: the coordinator adds noise to the sum of clipped updates.

McMahan, Ramage, Talwar and Zhang, Learning Differentially Private Recurrent Language Models, ICLR 2018. In every round
each of the N clients takes part with probability q, independently of the others (Poisson sampling). The mean update is
the sum of the clipped updates plus Gaussian noise, divided by q N: the fixed denominator of the paper, since the number
of participants depends on single clients. All clients count the same.

Two federations are neighbours if in one of them one client sends nothing; N is public. An update has G groups of
tensors, each of at most its clip C_g (`fedul.privacy.clipping`). In units of the clips one client moves the sum by at
most sqrt(G), so group g gets noise of standard deviation z sqrt(G) C_g, and a round is the Poisson-sampled Gaussian
mechanism with noise multiplier z. It follows that who took part, how many, and their losses must not be released.

Trust: the coordinator sees the updates, or with secure aggregation their sum, and adds the noise. The guarantee is
against everyone who sees the classifier and the metrics, not against the coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fedul.core import MeanUpdate, UpdateSpec, Weights
from fedul.core.update import TensorSpecs
from fedul.privacy.adaptive_clip import NoiseSplit, next_clips, split_noise
from fedul.privacy.clipping import clipped_groups, split_within
from fedul.privacy.dp_sgd.noise import add_noise
from fedul.privacy.dp_sgd.stream import RandomStream

STATE = "client-privacy/"
"""Prefix of the clips in the server state of a run."""


@dataclass(frozen=True)
class ClientPrivacy:
    """How the coordinator protects clients in a run.

    Parameters
    ----------
    noise : float
        Noise multiplier z of a round.
    clip : float
        Largest norm of each group of an update, at first.
    rate : float, default=1.0
        Probability q that a client takes part in a round.
    quantile : float or None
        Quantile of the norms that the clips follow; None if they do not change.
    seed : int or None
        Seed of noise and participation in a simulation, which gives no guarantee; None for the operating system.
    """

    noise: float
    clip: float
    rate: float = 1.0
    quantile: float | None = None
    seed: int | None = None


class PrivateMean:
    """Mean of clipped updates with noise.

    Parameters
    ----------
    privacy : ClientPrivacy
        The mechanism.
    spec : UpdateSpec
        What an update holds as it leaves a client.
    """

    def __init__(self, privacy: ClientPrivacy, spec: UpdateSpec) -> None:
        self.privacy, self.groups = privacy, clipped_groups(spec)
        message = split_within(spec.message)[0]
        specs: dict[str, TensorSpecs] = {"delta": spec.delta, "buffers": spec.buffers, "message": message}
        self._specs = {group: specs[group] for group in self.groups}

    def participants(self, names: Sequence[str], round_number: int) -> list[str]:
        """Return the clients that take part in a round, each with the same probability."""
        drawn = self._stream(round_number, "participation").uniform(len(names)) < self.privacy.rate
        return [name for name, takes_part in zip(names, drawn.tolist(), strict=True) if takes_part]

    def clips(self, server_state: Weights) -> dict[str, float]:
        """Return the clip of each group for the next round, given the server state that `release` returned last."""
        first = torch.tensor([self.privacy.clip], dtype=torch.float64)
        return {group: float(server_state.get(STATE + group, first)) for group in self.groups}

    def release(
        self, mean: MeanUpdate | None, clips: Mapping[str, float], clients: int, round_number: int
    ) -> tuple[MeanUpdate, Weights]:
        """Return the mean update with noise, and the clips of the next round as server state.

        Parameters
        ----------
        mean : MeanUpdate or None
            Mean of the updates of the participants, all with the same weight; None without participants.
        clips : mapping of str to float
            The clips of these updates.
        clients : int
            Number of clients N, whether they took part or not.
        round_number : int
            Number of the round.
        """
        stream, expected = self._stream(round_number, "noise"), self.privacy.rate * clients
        split = self.noise_split(clients)
        participants = 0.0 if mean is None else mean.clients
        message, within = split_within({} if mean is None else mean.message)
        means: dict[str, Weights] = {"message": message}
        if mean is not None:
            means |= {"delta": mean.delta, "buffers": mean.buffers}
        groups = {
            group: _noisy_sums(
                specs,
                means.get(group, {}),
                participants,
                split.updates * math.sqrt(len(self.groups)) * clips[group],
                expected,
                stream,
            )
            for group, specs in self._specs.items()
        }
        released = MeanUpdate(
            groups.get("delta", {}), groups.get("buffers", {}), groups.get("message", {}), steps=1.0, clients=expected
        )
        if self.privacy.quantile is not None:
            noise = dict(zip(self.groups, split.statements * stream.normal(len(self.groups)), strict=True))
            sums = {g: participants * (float(within[g]) - 0.5) if g in within else 0.0 for g in self.groups}
            shares = {group: (sums[group] + float(noise[group])) / expected + 0.5 for group in self.groups}
            clips = next_clips(clips, shares, self.privacy.quantile)
        return released, {STATE + group: torch.tensor([c], dtype=torch.float64) for group, c in clips.items()}

    def noise_split(self, clients: int) -> NoiseSplit:
        """Return the noise of updates and of statements about their norms, for this number of clients."""
        if self.privacy.quantile is None:
            return NoiseSplit(self.privacy.noise, 0.0)
        return split_noise(self.privacy.noise, self.privacy.rate * clients, len(self.groups))

    def relative_noise(self, clients: int) -> float:
        """Return the expected length of the noise of a mean update, relative to the largest one without noise.

        The length of d normal numbers is about sqrt(d) standard deviations. Without clipping losses, the mean update of
        clients that agree has norm C, and its noise z sqrt(d) C / (q N).
        """
        size = sum(torch.Size(each.shape).numel() for each in self._specs["delta"].values())
        deviation = self.noise_split(clients).updates * math.sqrt(len(self.groups))
        return deviation * math.sqrt(size) / (self.privacy.rate * clients)

    def _stream(self, round_number: int, purpose: str) -> RandomStream:
        seed = self.privacy.seed
        return RandomStream.from_system() if seed is None else RandomStream.from_seed(seed, round_number, purpose)


def algorithm_state(server_state: Weights) -> Weights:
    """Return the server state of the algorithm alone."""
    return {name: tensor for name, tensor in server_state.items() if not name.startswith(STATE)}


def floor_variances(weights: Weights, smallest: float = 1e-3) -> Weights:
    """Return weights whose batch-norm variances are not below a bound, as noise may make them."""
    return {
        name: tensor.clamp_min(smallest) if name.rpartition(".")[2] == "running_var" else tensor
        for name, tensor in weights.items()
    }


def _noisy_sums(
    specs: TensorSpecs, means: Weights, participants: float, deviation: float, expected: float, stream: RandomStream
) -> Weights:
    """Return (participants * mean + noise) / expected for every declared tensor; an absent mean is 0."""
    sums = [
        means[name].double() * participants if name in means else torch.zeros(spec.shape, dtype=torch.float64)
        for name, spec in specs.items()
    ]
    noisy = add_noise(sums, deviation, stream)
    return {name: (each / expected).to(spec.dtype) for (name, spec), each in zip(specs.items(), noisy, strict=True)}
