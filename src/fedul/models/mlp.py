"""Networks for rows of a table and for tiny images: logistic regression and multilayer perceptrons.

All flatten their input, so any shape works. The widths are not from the paper.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return one linear layer: multinomial logistic regression."""
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=nn.Linear(math.prod(shape), classes)))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of two hidden layers of 128 units with ReLU, and a linear head."""
    return _perceptron(shape, classes, 128, 128)


def small_mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of hidden layers of 64 and 32 units with ReLU, and a linear head."""
    return _perceptron(shape, classes, 64, 32)


def _perceptron(shape: tuple[int, ...], classes: int, first: int, second: int) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden1=nn.Linear(math.prod(shape), first),
            relu1=nn.ReLU(),
            hidden2=nn.Linear(first, second),
            relu2=nn.ReLU(),
            head=nn.Linear(second, classes),
        )
    )
