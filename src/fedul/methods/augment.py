"""Random augmentation of images: rotation, horizontal flip, or flip and crop.

The code of the paper rotates MNIST and flips CIFAR-10. Drawing is separate from applying: `Task.plan` draws the
parameters of every row beforehand.
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
    """Draw the parameters of an augmentation.

    Parameters
    ----------
    kind : {"none", "rotate", "flip", "flip-crop"}
        The augmentation.
    rows : int
        Number of images.
    generator : torch.Generator
        Source of randomness.

    Returns
    -------
    Tensor of shape (rows, p)
        Parameters of each image; p = 0 for "none".
    """
    if kind == "rotate":
        return (torch.rand(rows, 1, generator=generator) * 2 - 1) * math.radians(ROTATION)
    if kind == "flip":
        return torch.randint(0, 2, (rows, 1), generator=generator)
    if kind == "flip-crop":
        shifts = torch.randint(0, 2 * MARGIN + 1, (rows, 2), generator=generator)
        flips = torch.randint(0, 2, (rows, 1), generator=generator)
        return torch.cat([flips, shifts], dim=1)
    return torch.empty(rows, 0)


def apply(kind: str, images: Tensor, parameters: Tensor) -> Tensor:
    """Return augmented images (n, channels, height, width), with the parameters (n, p) that `draw` returned."""
    if kind == "rotate":
        return _rotate(images, parameters[:, 0])
    if kind == "flip":
        return torch.where(parameters[:, :, None, None] == 1, images.flip(3), images)
    return _flip_and_crop(images, parameters)


def _rotate(images: Tensor, angle: Tensor) -> Tensor:
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    aspect = images.shape[2] / images.shape[3]  # the grid runs over -1..1 along both sides of the image
    rotation = torch.stack(
        [torch.stack([cos, -sin * aspect, zero], 1), torch.stack([sin / aspect, cos, zero], 1)], 1
    )  # (n, 2, 3)
    grid = functional.affine_grid(rotation.to(images.dtype), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _flip_and_crop(images: Tensor, parameters: Tensor) -> Tensor:
    rows, channels, height, width = images.shape
    flips, down, right = parameters.unbind(1)
    padded = functional.pad(images, (MARGIN, MARGIN, MARGIN, MARGIN))
    y = torch.arange(height, device=images.device) + down[:, None]  # (n, height)
    x = torch.arange(width, device=images.device).expand(rows, width)
    x = torch.where(flips[:, None] == 1, width - 1 - x, x) + right[:, None]  # (n, width)
    pixels = (y[:, :, None] * padded.shape[3] + x[:, None, :]).reshape(rows, 1, -1)
    # One index per pixel for all channels: half the time of indexing rows, channels, height and width.
    return padded.flatten(2).gather(2, pixels.expand(-1, channels, -1)).reshape(images.shape)
