# SPDX-License-Identifier: Apache-2.0
"""`python -m trireme ...` is the program `trireme ...`."""
import os
import sys

from ._library import Error


def program():
    """The program beside the package, in the build folder of the source tree, or in PATH."""
    import shutil
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.path.join(here, 'lib', 'trireme'), os.path.join(os.path.dirname(os.path.dirname(here)), 'build', 'release', 'trireme')):
        if os.access(path, os.X_OK):
            return path
    found = shutil.which('trireme')
    if found is None:
        raise Error('the program trireme is not here; install the package again, or build it with `make`')
    return found


def main():
    path = program()
    os.execv(path, [path] + sys.argv[1:])


if __name__ == '__main__':
    main()
