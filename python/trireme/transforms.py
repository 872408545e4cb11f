# SPDX-License-Identifier: Apache-2.0
"""Transforms of images, for Dataset.map."""
import ctypes

from . import _c
from ._call import plain_call
from ._convert import enum


def _three(values):
    values = list(values) if hasattr(values, '__iter__') else [values] * 3
    if len(values) != 3:
        raise ValueError(f'normalize: one number, or three for R, G, B expected, found {values!r}')
    return (ctypes.c_double * 3)(*values)


def decode(exact=False):
    """Decodes JPEG and PNG to RGB; exact: without libjpeg-turbo's shortcuts."""
    return plain_call(_c.trm_transform_decode, exact)


def random_crop(height, width=None, padding=0):
    """Cuts out a uniformly placed window; padding: zeros added on each side first."""
    return plain_call(_c.trm_transform_random_crop, height, width or height, padding)


def random_resized_crop(height, width=None):
    """Cuts out a window of 0.08 to 1 of the area and of ratio 3/4 to 4/3, resized to height x width."""
    return plain_call(_c.trm_transform_random_resized_crop, height, width or height)


def center_crop(height, width=None):
    """Cuts out the middle."""
    return plain_call(_c.trm_transform_center_crop, height, width or height)


def random_flip(probability=0.5):
    """Mirrors left and right with a probability."""
    return plain_call(_c.trm_transform_random_flip, probability)


def resize(height, width=None, align='half_pixel'):
    """Resizes; align: half_pixel, original, antialias."""
    return plain_call(_c.trm_transform_resize, height, width or height, enum('trm_resize_align', align))


def resize_shorter(size, align='half_pixel'):
    """Resizes so that the shorter side has `size` pixels."""
    return plain_call(_c.trm_transform_resize_shorter, size, enum('trm_resize_align', align))


def rescale(scale=1 / 255.0, shift=0.0):
    """Computes x * scale + shift as float32."""
    return plain_call(_c.trm_transform_rescale, scale, shift)


def normalize(mean, std):
    """Computes (x - mean) / std for the channels R, G, B."""
    return plain_call(_c.trm_transform_normalize, _three(mean), _three(std))


def hwc2chw():
    """Makes batches [N, C, H, W]."""
    return _c.trm_transform_hwc2chw()


def type_cast(dtype):
    """Converts the image to float32, float16 or bfloat16."""
    return plain_call(_c.trm_transform_type_cast, enum('trm_dtype', dtype))
