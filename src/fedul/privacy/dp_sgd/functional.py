"""Clipped gradients of rows of any network, by `torch.func`: every row is predicted and differentiated by itself.

The gradients of single rows are in memory at the same time, so few rows are differentiated at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedul.errors import FedulError
from fedul.privacy.dp_sgd.clipping import clip_factors
from fedul.privacy.dp_sgd.layer_rows import RowTensors

MOST_VALUES = 2**24
"""Values of the gradients that are in memory at a time: 64 MB."""


class FunctionalGradients:
    """See `fedul.privacy.dp_sgd.row_gradients.RowGradients`.

    Parameters
    ----------
    module : nn.Module
        The network.
    """

    def __init__(self, module: nn.Module) -> None:
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names, self.parameters = list(trained), list[Tensor](trained.values())
        self._module, self._places = module, _places(module)
        self.chunk = max(1, MOST_VALUES // sum(p.numel() for p in self.parameters))
        self._recorded: list[tuple[Tensor, Tensor]] = []  # inputs and logits of a prediction

    def predict(self, inputs: Tensor) -> Tensor:
        weights = {name: p.detach() for name, p in self._module.named_parameters()}
        logits: Tensor = torch.func.vmap(self._predict_row, in_dims=(None, 0))(weights, inputs)
        if torch.is_grad_enabled() and not logits.requires_grad:
            logits = logits.detach().requires_grad_()
            self._recorded.append((inputs, logits))
        return logits

    def clipped_sum(self, loss: Tensor, clip: float) -> list[Tensor]:
        rows = self.rows(loss)
        if rows is None:
            return [torch.zeros_like(p) for p in self.parameters]
        with torch.no_grad():
            squared_norms = rows.squared_norms()
            factors = clip_factors(squared_norms, clip)
            if not squared_norms.isfinite().all():  # such rows contribute nothing, but 0 times infinity is no number
                finite = squared_norms.isfinite()
                rows, factors = RowTensors([each[finite] for each in rows.gradients], rows.shapes), factors[finite]
            return rows.weighted_sums(factors)

    def rows(self, loss: Tensor) -> RowTensors | None:
        """Return the gradient of each row, given the sum of their losses; None without predictions since the last call.

        Parameters
        ----------
        loss : Tensor
            Sum over rows of their losses, from the predictions since the last call.
        """
        recorded, self._recorded = self._recorded, []
        found = torch.autograd.grad(loss, [logits for _, logits in recorded], allow_unused=True)
        calls = [(x, g) for (x, _), g in zip(recorded, found, strict=True) if g is not None]
        if len({len(inputs) for inputs, _ in calls}) > 1:
            raise FedulError("a method with private rows must predict all rows of a step, in their order.")
        return self._gradients_of_rows(*map(list, zip(*calls, strict=True))) if calls else None

    def _gradients_of_rows(self, inputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> RowTensors:
        parameters = dict(self._module.named_parameters())
        constant = {name: p.detach() for name, p in parameters.items() if not p.requires_grad}
        trained = {name: p.detach() for name, p in parameters.items() if p.requires_grad}

        def row_loss(weights: dict[str, Tensor], row: list[Tensor], gradient: list[Tensor]) -> Tensor:
            """Return a number whose gradient with respect to the weights is that of the loss of the row."""
            parts = [self._predict_row({**weights, **constant}, x) @ g for x, g in zip(row, gradient, strict=True)]
            return sum(parts[1:], parts[0])

        of_rows = torch.func.vmap(torch.func.grad(row_loss), in_dims=(None, 0, 0))
        found = of_rows(trained, list(inputs), list(gradients))
        return RowTensors([found[name] for name in self.names], [p.shape for p in self.parameters])

    def _predict_row(self, weights: dict[str, Tensor], row: Tensor) -> Tensor:
        everywhere = {place: weights[name] for name, places in self._places.items() for place in places}
        # With tie_weights, a layer that is used twice would not get its own weights back.
        logits: Tensor = torch.func.functional_call(self._module, everywhere, (row.unsqueeze(0),), tie_weights=False)
        return logits.squeeze(0)


def _places(module: nn.Module) -> dict[str, list[str]]:
    """Return by name of a parameter the names of all places where layers have it, each layer once."""
    names = {id(p): name for name, p in module.named_parameters()}
    places: dict[str, list[str]] = {name: [] for name in names.values()}
    for prefix, layer in module.named_modules():
        for own, p in layer.named_parameters(recurse=False):
            places[names[id(p)]].append(f"{prefix}.{own}" if prefix else own)
    return places
