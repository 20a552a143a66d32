"""Convolutional networks for small images: one that is fast on a CPU, and the paper's network for MNIST.

`paper_cnn` is the table "Model architecture of the benchmark experiment on MNIST" of FedUL (ICLR 2022).
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of two 3x3 convolutions (16, 32 channels), each with max-pooling, and one hidden layer of 64.

    It has neither batch norm nor dropout, so a row's output depends on that row alone, in training too. Pooling comes
    before the ReLU, as in `paper_cnn`.
    """
    channels, height, width = shape
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 16, 3, padding=1),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(16, 32, 3, padding=1),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            hidden=nn.Linear(32 * _pooled_twice(height, width), 64),
            relu3=nn.ReLU(),
            head=nn.Linear(64, classes),
        )
    )


def paper_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the paper's network of six layers with batch norm, except that pooling comes before the ReLU.

    This only saves time: maximum and ReLU commute, and so do their gradients.
    """
    channels, height, width = shape
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 64, 5, 1, 2),
            bn1=nn.BatchNorm2d(64),
            pool1=nn.MaxPool2d(2, 2),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(64, 64, 5, 1, 2),
            bn2=nn.BatchNorm2d(64),
            pool2=nn.MaxPool2d(2, 2),
            relu2=nn.ReLU(),
            conv3=nn.Conv2d(64, 128, 5, 1, 2),
            bn3=nn.BatchNorm2d(128),
            relu3=nn.ReLU(),
            flatten=nn.Flatten(),
            fc1=nn.Linear(128 * _pooled_twice(height, width), 2048),  # 6272 inputs at 28 x 28
            bn4=nn.BatchNorm1d(2048),
            relu4=nn.ReLU(),
            fc2=nn.Linear(2048, 512),
            bn5=nn.BatchNorm1d(512),
            relu5=nn.ReLU(),
            fc3=nn.Linear(512, classes),
        )
    )


def _pooled_twice(height: int, width: int) -> int:
    """Return the number of pixels after two 2x2 max-poolings."""
    return (height // 4) * (width // 4)
