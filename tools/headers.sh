#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C11 and (where a C++ compiler is) as C++, leaks no foreign header, is part of
# trireme.h and stands in the man page. Usage: headers.sh ROOT CC
set -u
cxx=$(command -v c++ || command -v g++ || command -v clang++) || echo "no C++ compiler here: C11 only"
cd "$1" || exit 2
bad=0
for header in include/trireme/*.h; do
    echo "#include \"trireme/$(basename "$header")\"" > /tmp/trireme_header_$$.c
    "$2" -std=c11 -Wall -Werror -fsyntax-only -Iinclude /tmp/trireme_header_$$.c || bad=1
    [ -z "$cxx" ] || "$cxx" -x c++ -Wall -Werror -fsyntax-only -Iinclude /tmp/trireme_header_$$.c || bad=1
    if grep -nE '#[ \t]*include[ \t]*<' "$header" | grep -vE '<(stdint|stddef|stdbool)\.h>'; then
        echo "$header: only stdint, stddef and stdbool may be included"; bad=1
    fi
    name=trireme/$(basename "$header")
    [ "$name" = trireme/trireme.h ] || grep -qxF "#include \"$name\"" include/trireme/trireme.h || { echo "$name is not in trireme.h"; bad=1; }
    grep -qE "[ ,]$name(,|\$)" docs/man/libtrireme.3 || { echo "$name is not in docs/man/libtrireme.3"; bad=1; }
done
# A program needs trireme.h and nothing else, for TRM_OR_EXIT too.
cat > /tmp/trireme_header_$$.c <<'END'
#include "trireme/trireme.h"
int main(void) {
    trm_graph *graph;
    TRM_OR_EXIT(trm_graph_create(NULL, &graph, &err));
    trm_graph_destroy(graph);
    return 0;
}
END
"$2" -std=c11 -Wall -Wextra -Werror -Werror=implicit-function-declaration -fsyntax-only -Iinclude /tmp/trireme_header_$$.c || bad=1
[ -z "$cxx" ] || "$cxx" -x c++ -Wall -Wextra -Werror -fsyntax-only -Iinclude /tmp/trireme_header_$$.c || bad=1
rm -f /tmp/trireme_header_$$.c
# No internal names and no internal files of the library.
if grep -nE 'trmi_|TRMI_|\b(base|comm|data|exec|graph|plan|ps|save|train)/[a-z_/]*\.[ch]\b|[Gg]uide 0' include/trireme/*.h; then
    echo "a public header names what its readers do not have"; bad=1
fi
exit $bad
