// SPDX-License-Identifier: Apache-2.0
// shared_allocator.hpp: PyTorch's allocator of CPU memory, with large tensors in memory that the ranks of a host share.
//
// A collective on shared memory needs no copy; one on ordinary memory passes through a stage. share_memory() of the package installs
// the allocator; from then on every tensor of at least `least` bytes is shared, whoever makes it: DistributedDataParallel's buckets,
// gradients, buffers of FSDP. Blocks come from arenas of 64 MB or more, best fit first; free neighbours are joined. Arenas stay until the
// process ends, as the heap of malloc does.
#pragma once

#include <functional>

#include <c10/core/CPUAllocator.h>

namespace trireme {

// Returns a new arena of `bytes` zeros, or null when memory is out.
using MakeArena = std::function<void *(size_t bytes)>;

// Installs the allocator for tensors of at least `least` bytes; a second call changes the three values. `make` is called under the
// allocator's mutex; `owner` names it.
void install_shared_allocator(size_t least, const void *owner, MakeArena make);

// Takes the owner's source of arenas away: what does not fit into free blocks comes from PyTorch's own allocator.
void stop_shared_arenas(const void *owner);

}  // namespace trireme
