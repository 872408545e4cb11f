#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a tool or the tests of the Python package with a Python that has what they need; exit code 77 with the reason if none has.
# Usage: python_tests.sh declarations ROOT | python_tests.sh tests ROOT BUILD [PYTEST_ARGUMENTS]
set -u
what=$1 root=$2
find_python() { # MODULES: the first Python that has them
    for python in "${TRIREME_PYTHON:-python3}" python3 /usr/bin/python3; do
        "$python" -c "import $1" > /dev/null 2>&1 && { echo "$python"; return; }
    done
    echo "no Python here has the modules $1 (Debian: $2)" >&2
    exit 77
}
if [ "$what" = declarations ]; then
    python=$(find_python clang.cindex python3-clang) || exit 77
    exec "$python" "$root/tools/python_declarations.py" "$root" --check
fi
build=$(cd "$3" && pwd)
shift 3
python=$(find_python "numpy, pytest" "python3-numpy python3-pytest") || exit 77
export PYTHONPATH=$root/python TRIREME_LIBRARY=$build/libtrireme.so.0 TRIREME=$build/trireme TRIREME_BUILD=$build PYTHONDONTWRITEBYTECODE=1
exec timeout 800 "$python" -m pytest -q -p no:cacheprovider "$root/python/tests" "$@"
