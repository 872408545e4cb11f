// SPDX-License-Identifier: Apache-2.0
// shared_allocator.hpp: PyTorch's allocator of CPU memory, for large tensors: freed memory is used again without page faults, and
// tensors of collectives lie in memory that the ranks of a host share.
//
//   private   arenas of anonymous memory: every tensor of at least `least` bytes, at first
//   shared    arenas that the group's ranks reach: tensors of a size that collectives were called with, from the second such call on.
//             A private tensor of that size is moved then; its address stays
//
// A collective on shared memory needs no copy; one on private memory passes through a stage. Only what ranks exchange is shared, because
// a forked process has to copy shared memory, while the kernel copies private memory when it is written.
// The process keeps free memory up to what its tensors took lately, and gives the rest back. Whatever fails here (limits, no memory files)
// ends in PyTorch's own allocator for that tensor.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

namespace trireme {

// Returns a new arena of `bytes` zeros that the ranks share, or null when memory is out.
using MakeArena = std::function<void *(size_t bytes)>;

struct SharedTensors {
  size_t least;        // bytes of the smallest tensor that the allocator takes
  bool all;            // every tensor is shared from the start, whether collectives use it or not
  const void *owner;   // the process group
  MakeArena make;      // called under the allocator's mutex
};

// Installs the allocator or changes its settings. Returns false if another allocator was installed before, or if there is no memory to
// watch forks: PyTorch's tensors stay where they were.
bool install_shared_allocator(SharedTensors settings);
// New tensors come from PyTorch's own allocator, free memory is given back; tensors that are shared stay so.
void pause_shared_allocator();
// The owner's arenas end, too: its tensors live on. Returns its arenas without tensors, which the allocator has forgotten.
std::vector<void *> stop_shared_arenas(const void *owner);
// Whether a process group owns the allocator.
bool has_shared_arenas();

// Returns the address of a contiguous tensor's values to give to a collective of `owner`: where peers reach them, if they lie in shared
// memory, else the tensor's own address. Moves the tensor into shared memory when its size is used the second time. Nothing may write
// to the tensor during the call.
void *reach(const at::Tensor &tensor, const void *owner);

}  // namespace trireme
