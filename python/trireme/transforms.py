# SPDX-License-Identifier: Apache-2.0
# Written by tools/python_declarations.py from include/trireme/*.h; change the headers and run it.
"""Transforms of images, for Dataset.map."""
from typing import Any, Sequence, Union

from .data import transform

__all__ = [
    'decode', 'random_crop', 'random_resized_crop', 'center_crop', 'random_flip', 'resize', 'resize_shorter',
    'rescale', 'normalize', 'hwc2chw', 'type_cast',
]


def decode(exact: bool = False) -> Any:
    """Decodes JPEG and PNG, recognised by content, to RGB. Gray, palette and CMYK content is converted,
    alpha dropped. Other content, an image that ends early, and damage that the decoders notice (JPEG
    has no checksum) are TRM_CORRUPT with the file's name.
      param    exact: false = uses libjpeg-turbo's faster chroma upsampling, and decodes at 1/2, 1/4
               or 1/8 where the following crop or resize still shrinks the result
    """
    return transform('trm_transform_decode', exact)


def random_crop(height: int, width: int = 0, padding: int = 0) -> Any:
    """Cuts out a uniformly placed window of height x width pixels.
      param    width: 0 = height
               padding: 0 = none; zeros added on each side first
    """
    return transform('trm_transform_random_crop', height, width, padding)


def random_resized_crop(height: int, width: int = 0) -> Any:
    """Cuts out a window of 0.08 to 1 of the area and of ratio 3/4 to 4/3 (log-uniform; ten tries, then
    the largest central one), resized to height x width. The caller may change area, ratio and align
    in the returned value.
      param    width: 0 = height
    """
    return transform('trm_transform_random_resized_crop', height, width)


def center_crop(height: int, width: int = 0) -> Any:
    """Cuts out the middle of an image that is at least height x width.
      param    width: 0 = height
    """
    return transform('trm_transform_center_crop', height, width)


def random_flip(probability: float = 0.5) -> Any:
    """Mirrors left and right with a probability."""
    return transform('trm_transform_random_flip', probability)


def resize(height: int, width: int = 0, align: Any = 'half_pixel') -> Any:
    """Resizes to height x width. A uint8 image stays uint8 (rounded to nearest), as in OpenCV and
    torchvision.
      param    width: 0 = height
               align: where bilinear sampling reads

    align: half_pixel, original, antialias
    """
    return transform('trm_transform_resize', height, width, align)


def resize_shorter(size: int, align: Any = 'half_pixel') -> Any:
    """Resizes so that the shorter side has `size` pixels and the ratio stays.
      param    align: where bilinear sampling reads

    align: half_pixel, original, antialias
    """
    return transform('trm_transform_resize_shorter', size, align)


def rescale(scale: float = 1 / 255, shift: float = 0.0) -> Any:
    """Computes x * scale + shift; from here on the image is float32."""
    return transform('trm_transform_rescale', scale, shift)


def normalize(mean: Union[float, Sequence[float]], std: Union[float, Sequence[float]]) -> Any:
    """Computes (x - mean) / std for each of the channels R, G, B."""
    return transform('trm_transform_normalize', mean, std)


def hwc2chw() -> Any:
    """Makes batches [N, C, H, W]; without it they are [N, H, W, C]."""
    return transform('trm_transform_hwc2chw')


def type_cast(dtype: Any) -> Any:
    """Converts the image to float32, float16 or bfloat16."""
    return transform('trm_transform_type_cast', dtype)
