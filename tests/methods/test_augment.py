"""Random changes to images do exactly what their drawn parameters say."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fedul._utils.randomness import torch_generator
from fedul.methods.augment import MARGIN, ROTATION, apply, draw


def images(rows: int = 5, channels: int = 3, height: int = 8, width: int = 8) -> Tensor:
    return torch.rand(rows, channels, height, width, generator=torch_generator(1), dtype=torch.float64)


def flipped_and_cropped(image: Tensor, flip: int, down: int, right: int) -> Tensor:
    """One image, pixel by pixel: zeros around it, a window of its size, mirrored or not."""
    channels, height, width = image.shape
    result = torch.zeros_like(image)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                row, column = y + down - MARGIN, (width - 1 - x if flip else x) + right - MARGIN
                if 0 <= row < height and 0 <= column < width:
                    result[c, y, x] = image[c, row, column]
    return result


@pytest.mark.parametrize(("height", "width"), [(8, 8), (6, 9)])
def test_flips_and_crops_are_those_of_a_loop_over_pixels(height: int, width: int) -> None:
    before = images(20, 2, height, width)
    changes = draw("flip-crop", 20, torch_generator(0))
    after = apply("flip-crop", before, changes)
    for image, found, (flip, down, right) in zip(before, after, changes.tolist(), strict=True):
        assert torch.equal(found, flipped_and_cropped(image, flip, down, right))


def test_a_centred_crop_without_a_flip_is_the_image_itself() -> None:
    assert torch.equal(apply("flip-crop", images(), torch.tensor([[0, MARGIN, MARGIN]] * 5)), images())


def test_a_flip_alone_is_one_without_a_crop() -> None:
    flips = draw("flip", 5, torch_generator(0))
    assert set(flips[:, 0].tolist()) == {0, 1}
    cropped = torch.cat([flips, torch.full((5, 2), MARGIN)], dim=1)
    assert torch.equal(apply("flip", images(), flips), apply("flip-crop", images(), cropped))


def test_drawn_flips_and_shifts_cover_their_whole_range() -> None:
    flips, down, right = draw("flip-crop", 2000, torch_generator(0)).unbind(1)
    assert set(flips.tolist()) == {0, 1}
    assert set(down.tolist()) == set(right.tolist()) == set(range(2 * MARGIN + 1))


def test_a_rotation_by_no_angle_is_the_identity() -> None:
    assert_close(apply("rotate", images(), torch.zeros(5, 1, dtype=torch.float64)), images(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("quarters", [-1, 1, 2, 3])
def test_a_rotation_by_quarter_turns_moves_every_pixel_to_its_place(quarters: int) -> None:
    angle = torch.full((5, 1), quarters * math.pi / 2, dtype=torch.float64)
    assert_close(apply("rotate", images(), angle), torch.rot90(images(), quarters, (2, 3)), rtol=0, atol=1e-6)


def test_every_image_is_turned_by_its_own_angle() -> None:
    angles = torch.tensor([[0.0], [math.pi / 2], [0.0], [math.pi], [0.0]], dtype=torch.float64)
    rotated = apply("rotate", images(), angles)
    for i in range(5):
        assert_close(rotated[i : i + 1], apply("rotate", images()[i : i + 1], angles[i : i + 1]))


def test_drawn_angles_are_within_the_largest_rotation_to_both_sides() -> None:
    degrees = draw("rotate", 2000, torch_generator(0)).rad2deg()
    assert degrees.abs().max() <= ROTATION
    assert degrees.min() < -0.95 * ROTATION
    assert degrees.max() > 0.95 * ROTATION


@pytest.mark.parametrize("kind", ["rotate", "flip", "flip-crop"])
def test_single_precision_images_stay_so_and_keep_their_shape(kind: str) -> None:
    before = images().float()
    after = apply(kind, before, draw(kind, 5, torch_generator(0)))
    assert after.dtype == torch.float32
    assert after.shape == before.shape


@pytest.mark.parametrize("kind", ["rotate", "flip", "flip-crop"])
def test_drawing_follows_from_the_generator(kind: str) -> None:
    one, same, other = (draw(kind, 50, torch_generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_no_change_has_no_parameters_and_draws_nothing() -> None:
    generator = torch_generator(0)
    before = generator.get_state()
    assert draw("none", 7, generator).shape == (7, 0)
    assert torch.equal(generator.get_state(), before)


def test_rotation_does_not_shear_images_that_are_not_square() -> None:
    image = torch.zeros(1, 1, 9, 21)
    image[0, 0, 4, 7:14] = 1
    turned = apply("rotate", image, torch.tensor([[math.pi / 2]]))
    expected = torch.zeros(1, 1, 9, 21)
    expected[0, 0, 1:8, 10] = 1
    torch.testing.assert_close(turned, expected, atol=1e-5, rtol=0)
