"""Options of privacy: differential privacy of rows and of clients, perturbed priors, secure aggregation."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fedul._utils.settings import option
from fedul.errors import InputError


@dataclass(frozen=True)
class PrivacyOptions:
    """What is guaranteed to rows and clients, and what the coordinator may see."""

    dp_epsilon: float | None = option(
        None,
        "Differential privacy of every row of every client: upper bound of epsilon over the whole run, from which the "
        "noise of each client follows.",
        above=0,
    )
    dp_delta: float = option(
        1e-5, "Delta of --dp-epsilon; must be below 1 / rows of every client.", low=1e-12, high=0.1
    )
    dp_noise: float | None = option(
        None,
        "Noise of DP-SGD as a multiple of --dp-clip, in place of --dp-epsilon; epsilon follows from it.",
        low=0,
        high=1e6,
    )
    dp_clip: float = option(1.0, "Largest norm of the gradient of a row in DP-SGD.", above=0, high=1e6)
    dp_seeded: bool = option(
        False, "Draw noise and random batches from --seed: repeatable, and no guarantee. Simulation only."
    )
    client_dp_epsilon: float | None = option(
        None,
        "Differential privacy of whole clients: upper bound of epsilon over the whole run. In a round each client "
        "takes part with the probability --participation.",
        above=0,
    )
    client_dp_delta: float = option(1e-5, "Delta of --client-dp-epsilon.", low=1e-12, high=0.1)
    client_dp_noise: float | None = option(
        None,
        "Noise of the mean update as a multiple of --client-dp-clip, in place of --client-dp-epsilon.",
        low=0,
        high=1e6,
    )
    client_dp_clip: float = option(
        1.0, "Largest norm of the update of a client, the first one if it adapts.", above=0, high=1e6
    )
    client_dp_quantile: float | None = option(
        None, "Adapt --client-dp-clip to this quantile of the norms of updates.", above=0, high=0.999
    )
    prior_epsilon: float | None = option(
        None, "Perturb the class priors before anything uses them: epsilon of the class of one row.", low=1e-6
    )
    secure_aggregation: bool = option(
        False, "Hide every single update: the coordinator learns sums over the participating clients only."
    )
    aggregation_range: float = option(
        4.0,
        "Largest absolute value of a weight's change under secure aggregation; larger ones are clipped.",
        low=1e-6,
        high=1e6,
    )
    aggregation_threshold: float = option(
        0.7, "Share of a round's clients that must stay to its end, or the round is repeated.", above=0.5, high=1
    )

    def check_privacy(self) -> None:
        """Refuse settings that contradict each other."""
        for prefix in ("dp", "client_dp"):
            if getattr(self, f"{prefix}_epsilon") is not None and getattr(self, f"{prefix}_noise") is not None:
                name = prefix.replace("_", "-")
                raise InputError(f"{name}-noise: follows from {name}-epsilon; give one of the two.")
        for needed, names, enabling in (
            (self.protects_rows, ("dp_delta", "dp_clip"), "--dp-epsilon or --dp-noise"),
            (
                self.protects_clients,
                ("client_dp_delta", "client_dp_clip", "client_dp_quantile"),
                "--client-dp-epsilon or --client-dp-noise",
            ),
            (self.secure_aggregation, ("aggregation_range", "aggregation_threshold"), "--secure-aggregation"),
        ):
            defaults = {each.name: each.default for each in fields(PrivacyOptions)}
            ineffective = [name for name in names if getattr(self, name) != defaults[name]]
            if ineffective and not needed:
                raise InputError(f"{ineffective[0].replace('_', '-')}: protects nothing without {enabling}; add it.")
        if self.dp_seeded and not self.is_private and self.prior_epsilon is None:
            raise InputError("dp-seeded: is for noise, of which there is none; add --dp-epsilon, or leave it out.")

    @property
    def protects_rows(self) -> bool:
        """Whether clients train with DP-SGD."""
        return self.dp_epsilon is not None or self.dp_noise is not None

    @property
    def is_private(self) -> bool:
        """Whether rows or clients are protected, so that losses and comparisons on them are left out."""
        return self.protects_rows or self.protects_clients

    @property
    def protects_clients(self) -> bool:
        """Whether noise is added to the mean update."""
        return self.client_dp_epsilon is not None or self.client_dp_noise is not None
