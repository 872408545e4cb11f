// SPDX-License-Identifier: Apache-2.0
// shared_allocator.cpp: blocks of private and shared arenas (shared_allocator.hpp).
//
// Invariants: `blocks` has every block of every arena by address; neighbours of one arena touch. `unused` has the free ones of a kind by
// size, `idle` those of them that have pages. No two free blocks of an arena and a kind touch. `used_bytes` and `idle_bytes` are the
// sums over used and idle blocks; their sum stays below the limit of `trim`, but for the used ones.
#include "shared_allocator.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace trireme {
namespace {

constexpr size_t kArenaBytes = size_t{64} << 20;
// sizes and addresses of blocks: whole pages, which no two ranks' slices share by chance
const size_t kRound = std::max<size_t>(4096, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMostSizes = 1024;  // sizes of collectives that are remembered; a job with more of them gains nothing from it
constexpr size_t kMostMoved = 8192;  // tensors that are moved at a time: each takes up to three of the process's 65,530 mappings
constexpr size_t kTurns = 8;         // a window of `trim`: tensors of so many times the memory were made

enum Kind {
  kPrivate,
  kShared,
  kKept,  // was shared with a group that is gone, or is free shared memory of the process that forked this one
};

struct Block {
  size_t bytes;
  char *arena;  // first byte of the block's arena
  Kind kind;
  bool used;
  size_t pages;  // of a free block: so many bytes from its front may have pages
  char *twin;    // of a used private block: the shared block whose pages it has; else null
};

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void *map_private(void *at, size_t bytes) {
  void *memory = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

class SharedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void *memory = bytes >= least && bytes <= largest ? take_for_tensor(round_up(bytes, kRound)) : nullptr;
    if (memory == nullptr) {
      return own->allocate(bytes);
    }
    c10::profiledCPUMemoryReporter().New(memory, bytes);
    return {memory, memory, &release, at::DeviceType::CPU};
  }
  // oneDNN's scratch memory comes and goes as plain pointers, of this allocator or of PyTorch's own.
  c10::DeleterFnPtr raw_deleter() const override { return &release_raw; }
  void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  static void release(void *memory);
  static void release_raw(void *memory);
  bool install(SharedTensors settings);
  std::vector<void *> stop(const void *which);
  void *reach(char *at, size_t bytes, bool may_move, const void *which);
  void pause() {
    std::lock_guard<std::mutex> lock(mutex);
    least = SIZE_MAX;
    trim();
  }
  void copy_before_fork();
  void drop_copy();
  void use_copy_in_child();

  std::mutex mutex;
  const void *owner = nullptr;  // of `make`
  std::atomic<size_t> least{SIZE_MAX};

 private:
  bool has(void *memory) {
    std::lock_guard<std::mutex> lock(mutex);
    return blocks.count(static_cast<char *>(memory)) != 0;
  }
  bool is_whole_arena(std::map<char *, Block>::const_iterator block) const {
    auto next = std::next(block);
    return block->first == block->second.arena && (next == blocks.end() || next->second.arena != block->second.arena);
  }
  void *take_for_tensor(size_t bytes);
  bool add_arena(size_t bytes, Kind kind);
  char *take(size_t bytes, Kind kind);
  void give_back(char *at);
  void give_twin(char *at, Block &block);
  void drop_twin(char *at, Block &block);
  void add_free(char *at, Block &block);
  void remove_free(char *at, Block &block);
  void count_taken(size_t bytes);
  void trim();
  template <typename Each>
  void visit_shared_tensors(Each each);

  c10::Allocator *own = nullptr;  // PyTorch's own, for small tensors, and for those that are larger than the machine's memory
  const size_t largest = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  MakeArena make;
  bool all = false;
  std::set<size_t> sizes;  // of tensors that collectives were called with
  std::map<char *, Block> blocks;
  std::set<std::pair<size_t, char *>> unused[kKept], idle;
  size_t arena_bytes[kKept] = {};  // of all arenas of a kind
  size_t used_bytes = 0, idle_bytes = 0;
  size_t peaks[2] = {};  // most used_bytes in this window and in the one before
  size_t taken = 0;      // bytes of tensors made in this window
  size_t moved = 0;      // blocks with a twin
  char *copy = nullptr;  // of the shared tensors, while the process forks
  size_t copy_bytes = 0;
};

// Never deleted: tensors may outlive every other object of the process.
SharedAllocator &shared_allocator() {
  static auto *allocator = new SharedAllocator;
  return *allocator;
}

void SharedAllocator::release(void *memory) {
  c10::profiledCPUMemoryReporter().Delete(memory);
  SharedAllocator &allocator = shared_allocator();
  std::lock_guard<std::mutex> lock(allocator.mutex);
  allocator.give_back(static_cast<char *>(memory));
  allocator.trim();
}

void SharedAllocator::release_raw(void *memory) {
  SharedAllocator &allocator = shared_allocator();
  if (allocator.has(memory)) {
    release(memory);
  } else {
    allocator.own->raw_deallocate(memory);
  }
}

void SharedAllocator::add_free(char *at, Block &block) {
  block.used = false;
  if (block.kind != kKept) {
    unused[block.kind].insert({block.bytes, at});
  }
  if (block.pages > 0) {
    idle.insert({block.pages, at});
    idle_bytes += block.pages;
  }
}

void SharedAllocator::remove_free(char *at, Block &block) {
  if (block.kind != kKept) {
    unused[block.kind].erase({block.bytes, at});
  }
  if (block.pages > 0) {
    idle.erase({block.pages, at});
    idle_bytes -= block.pages;
  }
}

// Arenas grow with their sum, so that there are few of them: a group has 256 shared ones at most.
bool SharedAllocator::add_arena(size_t bytes, Kind kind) {
  size_t whole = round_up(std::max({bytes, kArenaBytes, arena_bytes[kind] / 8}), kHugePage);
  char *arena;
  if (kind == kShared) {
    arena = make ? static_cast<char *>(make(whole)) : nullptr;
  } else {
    arena = static_cast<char *>(map_private(nullptr, whole));
  }
  if (arena == nullptr) {
    return false;
  }
  if (kind == kPrivate) {
    madvise(arena, whole, MADV_HUGEPAGE);
  }
  arena_bytes[kind] += whole;
  Block &block = blocks[arena] = {whole, arena, kind, false, kind == kShared ? whole : 0, nullptr};
  add_free(arena, block);
  return true;
}

char *SharedAllocator::take(size_t bytes, Kind kind) {
  auto fit = unused[kind].lower_bound({bytes, nullptr});
  if (fit == unused[kind].end()) {
    if (!add_arena(bytes, kind)) {
      return nullptr;
    }
    fit = unused[kind].lower_bound({bytes, nullptr});
  }
  char *at = fit->second;
  Block &block = blocks[at];
  remove_free(at, block);
  if (block.bytes > bytes) {
    Block &rest = blocks[at + bytes] = {block.bytes - bytes, block.arena, kind, false, block.pages > bytes ? block.pages - bytes : 0, nullptr};
    add_free(at + bytes, rest);
    block.bytes = bytes;
  }
  block.used = true;
  used_bytes += bytes;
  return at;
}

void SharedAllocator::give_back(char *at) {
  auto block = blocks.find(at);
  if (block->second.twin != nullptr) {
    drop_twin(at, block->second);
    if (block->second.used) {
      return;
    }
  } else {
    used_bytes -= block->second.bytes;
    block->second.pages = block->second.bytes;
  }
  if (block->second.kind == kKept) {  // nothing uses it again
    madvise(at, block->second.bytes, MADV_REMOVE);
    block->second.pages = 0;
  }
  auto joins = [&block](const std::pair<char *const, Block> &other) {
    return !other.second.used && other.second.arena == block->second.arena && other.second.kind == block->second.kind;
  };
  auto next = std::next(block);
  if (next != blocks.end() && joins(*next)) {
    remove_free(next->first, next->second);
    block->second.pages = next->second.pages > 0 ? block->second.bytes + next->second.pages : block->second.pages;
    block->second.bytes += next->second.bytes;
    blocks.erase(next);
  }
  if (block != blocks.begin() && joins(*std::prev(block))) {
    auto before = std::prev(block);
    remove_free(before->first, before->second);
    before->second.pages = block->second.pages > 0 ? before->second.bytes + block->second.pages : before->second.pages;
    before->second.bytes += block->second.bytes;
    blocks.erase(block);
    block = before;
  }
  if (block->second.kind == kKept && is_whole_arena(block)) {
    munmap(block->first, block->second.bytes);
    blocks.erase(block);
    return;
  }
  add_free(block->first, block->second);
}

// Ends a window when enough tensors were made in it.
void SharedAllocator::count_taken(size_t bytes) {
  peaks[0] = std::max(peaks[0], used_bytes);
  taken += bytes;
  if (taken / kTurns > std::max({peaks[0], peaks[1], kArenaBytes})) {
    peaks[1] = peaks[0];
    peaks[0] = used_bytes;
    taken = 0;
  }
}

// Gives pages of free blocks back, the largest first, until no more are kept than tensors took in the last two windows, an eighth and
// an arena.
void SharedAllocator::trim() {
  size_t most = least == SIZE_MAX ? 0 : std::max(peaks[0], peaks[1]);
  most = most == 0 ? 0 : most + most / 8 + kArenaBytes;
  while (idle_bytes > 0 && used_bytes + idle_bytes > most) {
    char *at = idle.rbegin()->second;
    Block &block = blocks[at];
    remove_free(at, block);
    size_t surplus = used_bytes + idle_bytes + block.pages - most;
    char *end = at + block.pages;
    // whole huge pages stay whole
    char *cut = surplus >= block.pages ? at : std::max(at, reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(end - surplus) / kHugePage * kHugePage));
    madvise(cut, static_cast<size_t>(end - cut), block.kind == kPrivate ? MADV_DONTNEED : MADV_REMOVE);
    block.pages = static_cast<size_t>(cut - at);
    add_free(at, block);
  }
}

void *SharedAllocator::take_for_tensor(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  char *at = make && (all || sizes.count(bytes) != 0) ? take(bytes, kShared) : nullptr;
  at = at == nullptr ? take(bytes, kPrivate) : at;
  if (at != nullptr) {
    count_taken(bytes);
    trim();
  }
  return at;
}

// Moves a private block's values into a shared block, whose pages take the place of its own. Without shared memory nothing changes.
void SharedAllocator::give_twin(char *at, Block &block) {
  char *twin = take(block.bytes, kShared);
  if (twin == nullptr) {
    return;
  }
  // a second mapping of the same pages, then moved: a failure of the first leaves the tensor untouched
  void *pages = mremap(twin, 0, block.bytes, MREMAP_MAYMOVE);
  if (pages == MAP_FAILED) {
    give_back(twin);
    return;
  }
  std::memcpy(twin, at, block.bytes);
  if (mremap(pages, block.bytes, block.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
    if (map_private(at, block.bytes) == nullptr) {
      fprintf(stderr, "torch_trireme: a tensor of %zu bytes lost its memory: the kernel has no more mappings (vm.max_map_count)\n", block.bytes);
      abort();
    }
    std::memcpy(at, twin, block.bytes);
    munmap(pages, block.bytes);
    give_back(twin);
    return;
  }
  block.twin = twin;
  moved++;
  used_bytes -= block.bytes;
}

// Gives a private block that is freed memory of its own again. Where the kernel refuses, the block stays used for ever.
void SharedAllocator::drop_twin(char *at, Block &block) {
  char *twin = block.twin;
  bool mapped = map_private(at, block.bytes) != nullptr;
  block.twin = nullptr;
  moved--;
  block.pages = 0;
  block.used = !mapped;
  if (mapped) {
    madvise(at, block.bytes, MADV_HUGEPAGE);
  }
  give_back(twin);
}

// may_move: the tensor has all of its storage, and no device has pinned it: the device would go on with the pages of before.
void *SharedAllocator::reach(char *at, size_t bytes, bool may_move, const void *which) {
  std::lock_guard<std::mutex> lock(mutex);
  if (owner != which || !make) {
    return at;
  }
  auto found = blocks.upper_bound(at);
  if (found == blocks.begin()) {
    return at;
  }
  auto &[begin, block] = *std::prev(found);
  if (!block.used || block.kind != kPrivate || at + bytes > begin + block.bytes) {
    return at;
  }
  if (block.twin == nullptr && may_move && at == begin && block.bytes == round_up(bytes, kRound)) {
    if (sizes.count(block.bytes) != 0) {
      if (moved < kMostMoved) {
        give_twin(begin, block);
      }
    } else if (sizes.size() < kMostSizes) {
      sizes.insert(block.bytes);
    }
  }
  return block.twin != nullptr ? block.twin + (at - begin) : at;
}

// A forked child (a worker of a DataLoader) has its parent's values of the moment of the fork, and must not write into its parent's
// tensors. The parent copies its used shared blocks before the fork: afterwards it might write to them before the child has copied them. The child puts
// the copies in the blocks' places. Free shared blocks are the parent's, which makes tensors in them: the child neither uses nor empties them.
template <typename Each>
void SharedAllocator::visit_shared_tensors(Each each) {
  std::set<char *> twins;
  for (const auto &[at, block] : blocks) {
    if (block.twin != nullptr) {
      twins.insert(block.twin);
    }
  }
  for (auto &[at, block] : blocks) {
    if (block.used && (block.kind != kPrivate || block.twin != nullptr) && twins.count(at) == 0) {
      each(at, block);
    }
  }
}

void SharedAllocator::copy_before_fork() {
  copy_bytes = 0;
  visit_shared_tensors([this](char *, const Block &block) { copy_bytes += block.bytes; });
  copy = copy_bytes > 0 ? static_cast<char *>(map_private(nullptr, copy_bytes)) : nullptr;
  if (copy == nullptr) {
    return;
  }
  madvise(copy, copy_bytes, MADV_HUGEPAGE);
  char *to = copy;
  visit_shared_tensors([&to](char *at, const Block &block) {
    std::memcpy(to, at, block.bytes);
    to += block.bytes;
  });
}

void SharedAllocator::drop_copy() {
  if (copy != nullptr) {
    munmap(copy, copy_bytes);
  }
}

void SharedAllocator::use_copy_in_child() {
  make = nullptr;
  owner = nullptr;
  char *from = copy;
  visit_shared_tensors([&from](char *at, Block &block) {
    if (from == nullptr || mremap(from, block.bytes, block.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
      fprintf(stderr, "torch_trireme: fork: no memory for the child's copy of a shared tensor of %zu bytes\n", block.bytes);
      abort();  // the child would share memory with its parent unseen
    }
    from += block.bytes;
  });
  visit_shared_tensors([this](char *, Block &block) {
    if (block.twin != nullptr) {
      blocks[block.twin].used = false;
    }
    block.kind = kPrivate;
    block.twin = nullptr;
  });
  moved = 0;
  unused[kShared].clear();
  arena_bytes[kShared] = 0;
  idle.clear();
  idle_bytes = 0;
  for (auto &[at, block] : blocks) {
    block.pages = block.used ? block.pages : 0;
    block.kind = block.kind == kShared ? kKept : block.kind;
  }
}

void before_fork() {
  shared_allocator().mutex.lock();
  shared_allocator().copy_before_fork();
}
void after_fork_in_parent() {
  shared_allocator().drop_copy();
  shared_allocator().mutex.unlock();
}
void after_fork_in_child() {
  shared_allocator().use_copy_in_child();
  shared_allocator().mutex.unlock();
}

bool SharedAllocator::install(SharedTensors settings) {
  std::unique_lock<std::mutex> lock(mutex);
  if (own == nullptr) {
    if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator() || pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
      return false;
    }
    own = c10::GetCPUAllocator();
  }
  if (c10::GetCPUAllocator() != this) {
    c10::SetCPUAllocator(this, 1);
  }
  if (c10::GetCPUAllocator() != this) {
    return false;  // another one has a higher priority
  }
  owner = settings.owner;
  make = std::move(settings.make);
  all = settings.all;
  least = std::max<size_t>(settings.least, 1);
  return true;
}

std::vector<void *> SharedAllocator::stop(const void *which) {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<void *> empty;
  if (owner == nullptr || owner != which) {
    return empty;
  }
  owner = nullptr;
  make = nullptr;
  least = SIZE_MAX;
  sizes.clear();
  peaks[0] = peaks[1] = taken = 0;
  arena_bytes[kShared] = 0;
  for (auto at = blocks.begin(); at != blocks.end();) {
    auto next = std::next(at);
    Block &block = at->second;
    if (block.kind == kShared) {
      if (!block.used) {
        remove_free(at->first, block);
      }
      block.kind = kKept;
      if (!block.used && is_whole_arena(at)) {
        empty.push_back(at->first);
        blocks.erase(at);
      } else if (!block.used) {
        madvise(at->first, block.bytes, MADV_REMOVE);
        block.pages = 0;
        add_free(at->first, block);
      }
    }
    at = next;
  }
  trim();
  return empty;
}

}  // namespace

bool install_shared_allocator(SharedTensors settings) { return shared_allocator().install(std::move(settings)); }

std::vector<void *> stop_shared_arenas(const void *owner) { return shared_allocator().stop(owner); }

void pause_shared_allocator() { shared_allocator().pause(); }

bool has_shared_arenas() {
  std::lock_guard<std::mutex> lock(shared_allocator().mutex);
  return shared_allocator().owner != nullptr;
}

void *reach(const at::Tensor &tensor, const void *owner) {
  auto *at = static_cast<char *>(tensor.data_ptr());
  size_t bytes = tensor.nbytes();
  if (bytes < shared_allocator().least) {
    return at;
  }
  const c10::Storage &storage = tensor.storage();
  bool whole = storage.nbytes() == bytes && storage.data_ptr().get_deleter() == &SharedAllocator::release;
  return shared_allocator().reach(at, bytes, whole && !tensor.is_pinned(), owner);
}

}  // namespace trireme
