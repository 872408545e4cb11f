# SPDX-License-Identifier: Apache-2.0
"""`python -m trireme ...` is the program `trireme ...`."""
import os
import sys

from ._library import Error, places


def program():
    """The program beside the package, in the build folder of the source tree, or in PATH."""
    import shutil
    for path in places('trireme') + [shutil.which('trireme')]:
        if path and os.access(path, os.X_OK):
            return path
    raise Error('the program trireme is not here; install the package again, or build it with `make`')


def main():
    path = program()
    os.execv(path, [path] + sys.argv[1:])


if __name__ == '__main__':
    main()
