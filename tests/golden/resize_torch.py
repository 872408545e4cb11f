#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes resize_torch.h: bilinear resizes of a small uint8 picture by PyTorch (interpolate,
align_corners=False, with and without antialias) and, for the original alignment, by NumPy from its
definition. Run by hand (torch 1.13, Debian's python3-torch); the output is kept."""
import numpy as np
import torch
import torch.nn.functional as F

H, W = 12, 17


def picture():
    y, x, c = np.mgrid[0:H, 0:W, 0:3]
    return ((y * 37 + x * 11 + c * 71 + (x * y * (c + 3)) % 29 * 5) % 256).astype(np.uint8)


def by_torch(image, height, width, antialias):
    t = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
    out = F.interpolate(t, size=(height, width), mode="bilinear", align_corners=False,
                        antialias=antialias)
    return out[0].permute(1, 2, 0).numpy()


def original(image, height, width):
    """TF 1's default: output i samples i * in / out."""
    f = image.astype(np.float64)

    def axis(n_in, n_out):
        at = np.minimum(np.arange(n_out) * (n_in / n_out), n_in - 1)
        low = np.floor(at).astype(int)
        return low, np.minimum(low + 1, n_in - 1), at - low

    y0, y1, wy = axis(H, height)
    x0, x1, wx = axis(W, width)
    wy, wx = wy[:, None, None], wx[None, :, None]
    top = f[y0][:, x0] * (1 - wx) + f[y0][:, x1] * wx
    bottom = f[y1][:, x0] * (1 - wx) + f[y1][:, x1] * wx
    return top * (1 - wy) + bottom * wy


def main():
    image = picture()
    with open("resize_torch.h", "w") as out:
        out.write("/* Made by resize_torch.py with torch %s; do not edit. */\n" % torch.__version__)
        for name, height, width in (("up", 20, 23), ("down", 5, 7), ("mixed", 30, 4)):
            results = {
                "half_pixel": by_torch(image, height, width, False),
                "original": original(image, height, width),
                "antialias": by_torch(image, height, width, True),
            }
            for align, result in results.items():
                values = ", ".join("%.3f" % v for v in result.reshape(-1))
                out.write("static const float golden_%s_%s[%d] = {%s};\n"
                          % (name, align, result.size, values))


main()
