"""Random changes to batches of images: rotation (MNIST in the paper's code), flip (CIFAR-10 there), flip and crop.

Drawing and applying are apart: a plan draws the parameters of every row beforehand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

ROTATION = 20.0
"""Largest rotation, in degrees."""
MARGIN = 4
"""Pixels of zero padding around an image that is cropped."""


def draw(kind: str, rows: int, generator: torch.Generator) -> Tensor:
    """Parameters of the change to each row: (rows, p), with p = 0 for 'none'."""
    if kind == "rotate":
        return (torch.rand(rows, 1, generator=generator) * 2 - 1) * math.radians(ROTATION)
    if kind == "flip":
        return torch.randint(0, 2, (rows, 1), generator=generator)
    if kind == "flip-crop":
        shifts = torch.randint(0, 2 * MARGIN + 1, (rows, 2), generator=generator)
        flips = torch.randint(0, 2, (rows, 1), generator=generator)
        return torch.cat([flips, shifts], dim=1)
    return torch.empty(rows, 0)


def apply(kind: str, images: Tensor, changes: Tensor) -> Tensor:
    """The changed images (n, channels, height, width)."""
    if kind == "rotate":
        return _rotated(images, changes[:, 0])
    if kind == "flip":
        return torch.where(changes[:, :, None, None] == 1, images.flip(3), images)
    return _flipped_and_cropped(images, changes)


def _rotated(images: Tensor, angle: Tensor) -> Tensor:
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    tall = images.shape[2] / images.shape[3]  # the grid runs over -1..1 both ways, whatever the image's sides are
    turn = torch.stack(
        [torch.stack([cos, -sin * tall, zero], 1), torch.stack([sin / tall, cos, zero], 1)], 1
    )  # (n, 2, 3)
    grid = functional.affine_grid(turn.to(images.dtype), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _flipped_and_cropped(images: Tensor, changes: Tensor) -> Tensor:
    rows, channels, height, width = images.shape
    flips, down, right = changes.unbind(1)
    padded = functional.pad(images, (MARGIN, MARGIN, MARGIN, MARGIN))
    y = torch.arange(height, device=images.device) + down[:, None]  # (n, height)
    x = torch.arange(width, device=images.device).expand(rows, width)
    x = torch.where(flips[:, None] == 1, width - 1 - x, x) + right[:, None]  # (n, width)
    n = torch.arange(rows, device=images.device)[:, None, None, None]
    c = torch.arange(channels, device=images.device)[None, :, None, None]
    return padded[n, c, y[:, None, :, None], x[:, None, None, :]]
