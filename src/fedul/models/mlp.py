"""Networks for rows of a table and for tiny images: logistic regression and a multilayer perceptron.

Both flatten their input, so any shape works. The widths are not from the paper.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

WIDTH = 128


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return one linear layer: multinomial logistic regression."""
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=nn.Linear(math.prod(shape), classes)))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of two hidden layers of 128 units with ReLU, and a linear head."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden1=nn.Linear(math.prod(shape), WIDTH),
            relu1=nn.ReLU(),
            hidden2=nn.Linear(WIDTH, WIDTH),
            relu2=nn.ReLU(),
            head=nn.Linear(WIDTH, classes),
        )
    )
