#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs `make install` into a folder of its own; a program outside builds against it by pkg-config (shared and static) and by
# CMake's find_package.
. "$(dirname "$0")/common.sh"
set -e
sanitized && skip "programs outside are not built with a sanitizer"
folder=$work
cmake --install "$TRIREME_BUILD" --prefix "$folder/inst" > /dev/null
pc=$(dirname "$(find "$folder/inst" -name trireme.pc)")
lib=$(dirname "$pc")
cat > "$folder/program.c" <<'END'
#include <trireme/trireme.h>
#include <stdio.h>
int main(void) {
    trm_graph *graph;
    trm_error err;
    if (trm_graph_create(NULL, &graph, &err) != TRM_OK) {
        return 1;
    }
    trm_graph_destroy(graph);
    puts(trm_version());
    return 0;
}
END
# The .pc file finds its prefix from its own place: a prefix other than the configured one, and a moved tree.
flags() { PKG_CONFIG_PATH=$pc pkg-config "$@" trireme; }
test "$(realpath "$(flags --variable=prefix)")" = "$folder/inst"
mv "$folder/inst" "$folder/moved"
moved=${pc/"$folder/inst"/"$folder/moved"}
test "$(realpath "$(PKG_CONFIG_PATH=$moved pkg-config --variable=prefix trireme)")" = "$folder/moved"
mv "$folder/moved" "$folder/inst"
# Each example compiles against the installed tree alone, as C11 and as C++20, where &(type){...} means what it means in C.
cxx=$(command -v g++ || command -v clang++ || command -v c++ || true)
for example in "$source"/examples/*.c; do
    cc -std=c11 -Wall -Wextra -Werror "$example" $(flags --cflags --libs) -lm -o "$folder/example"
    [ -z "$cxx" ] ||
        "$cxx" -std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Werror -x c++ "$example" -x none $(flags --cflags --libs) -o "$folder/example"
done
cc "$folder/program.c" $(flags --cflags --libs) -o "$folder/shared"
test "$(LD_LIBRARY_PATH=$lib "$folder/shared")" = "$(flags --modversion)"
# A program elsewhere finds the library's plug-in for UCX.
if [ -f "$(find "$folder/inst" -name trireme_comm_ucx.so)" ]; then
    cat > "$folder/ranks.c" <<'END'
#include <trireme/trireme.h>
#include <stdio.h>
int main(void) {
    trm_cluster *cluster;
    trm_bootstrap *job;
    trm_comm *comm;
    float one = 1;
    TRM_OR_EXIT(trm_cluster_from_env(NULL, NULL, NULL, &cluster, &err));
    TRM_OR_EXIT(trm_cluster_join(cluster, NULL, &job, &err));
    TRM_OR_EXIT(trm_comm_create(job, &(trm_comm_options){.engine = "ucx"}, &comm, &err));
    TRM_OR_EXIT(trm_comm_allreduce(comm, &one, 1, TRM_FLOAT32, TRM_REDUCTION_SUM, &err));
    printf("sum %g\n", (double)one);
    trm_comm_destroy(comm);
    trm_cluster_leave(job);
    trm_cluster_destroy(cluster);
    return 0;
}
END
    cc "$folder/ranks.c" $(flags --cflags --libs) -o "$folder/ranks"
    LD_LIBRARY_PATH=$lib timeout 60 "$folder/inst/bin/trireme" run -n 2 -- "$folder/ranks" > "$folder/ranks.log" 2>&1 &&
        grep -q "sum 2" "$folder/ranks.log" || { cat "$folder/ranks.log"; exit 1; }
fi
cc "$folder/program.c" $(flags --cflags) "$lib/libtrireme.a" $(flags --static --libs | sed 's/-ltrireme//') -o "$folder/static"
test "$("$folder/static")" = "$(flags --modversion)"
mkdir "$folder/project"
cat > "$folder/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(Trireme 0.2 REQUIRED)
add_executable(user ../program.c)
target_link_libraries(user Trireme::trireme)
END
cmake -S "$folder/project" -B "$folder/project/build" -DCMAKE_PREFIX_PATH="$folder/inst" > /dev/null
cmake --build "$folder/project/build" > /dev/null
"$folder/project/build/user" > /dev/null
"$folder/inst/bin/trireme" version > /dev/null
for page in man1/trireme.1 man3/libtrireme.3; do
    gzip -dc "$folder/inst/share/man/$page.gz" | cmp - "$source/docs/man/${page#*/}"
done
# Without cmocka everything but the tests is built, because `make train` is a user's first command.
mkdir "$folder/packages"
for place in $(pkg-config --variable pc_path pkg-config | tr ':' ' '); do
    find "$place" -name '*.pc' ! -name cmocka.pc -exec ln -sf {} "$folder/packages" \; 2> /dev/null || true
done
PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$folder/packages cmake -S "$TRIREME_SOURCE" -B "$folder/bare" > "$folder/bare.log" 2>&1 ||
    { cat "$folder/bare.log"; exit 1; }
grep -q "no cmocka" "$folder/bare.log"
cmake --build "$folder/bare" --target help | grep -q product
