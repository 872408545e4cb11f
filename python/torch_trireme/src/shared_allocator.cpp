// SPDX-License-Identifier: Apache-2.0
// shared_allocator.cpp: blocks of shared arenas (shared_allocator.hpp).
//
// Invariants: `blocks` has every block of every arena by address; neighbours of one arena touch. `unused` has the free ones by size.
// No two free blocks of an arena touch.
#include "shared_allocator.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace trireme {
namespace {

constexpr size_t kArenaBytes = size_t{64} << 20;
constexpr size_t kRound = 4096;  // sizes and addresses of blocks: whole pages, which no two ranks' slices share by chance

struct Block {
  size_t bytes;
  char *arena;  // first byte of the block's arena
  bool used;
};

class SharedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void *memory = bytes >= least && bytes <= SIZE_MAX / 2 ? take((bytes + kRound - 1) / kRound * kRound) : nullptr;
    if (memory == nullptr) {
      return own->allocate(bytes);
    }
    return {memory, memory, &release, at::DeviceType::CPU};
  }
  // oneDNN's scratch memory comes and goes as plain pointers, of this allocator or of PyTorch's own.
  c10::DeleterFnPtr raw_deleter() const override { return &release_raw; }
  void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  c10::Allocator *own = nullptr;  // PyTorch's own, for small tensors
  size_t least = 0;
  const void *owner = nullptr;  // of `make`
  MakeArena make;
  std::mutex mutex;
  std::map<char *, Block> blocks;
  std::set<std::pair<size_t, char *>> unused;

 private:
  static void release(void *memory);
  static void release_raw(void *memory);
  bool is_shared(void *memory) {
    std::lock_guard<std::mutex> lock(mutex);
    return blocks.count(static_cast<char *>(memory)) != 0;
  }

  void *take(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    auto fit = unused.lower_bound({bytes, nullptr});
    if (fit == unused.end()) {
      size_t whole = bytes > kArenaBytes ? bytes : kArenaBytes;
      char *arena = make ? static_cast<char *>(make(whole)) : nullptr;
      if (arena == nullptr) {
        return nullptr;
      }
      blocks[arena] = {whole, arena, false};
      fit = unused.insert({whole, arena}).first;
    }
    char *at = fit->second;
    unused.erase(fit);
    Block &block = blocks[at];
    block.used = true;
    if (block.bytes > bytes) {
      blocks[at + bytes] = {block.bytes - bytes, block.arena, false};
      unused.insert({block.bytes - bytes, at + bytes});
      block.bytes = bytes;
    }
    return at;
  }

  void give_back(char *at) {
    std::lock_guard<std::mutex> lock(mutex);
    auto block = blocks.find(at);
    block->second.used = false;
    auto next = std::next(block);
    if (next != blocks.end() && !next->second.used && next->second.arena == block->second.arena) {
      unused.erase({next->second.bytes, next->first});
      block->second.bytes += next->second.bytes;
      blocks.erase(next);
    }
    if (block != blocks.begin()) {
      auto before = std::prev(block);
      if (!before->second.used && before->second.arena == block->second.arena) {
        unused.erase({before->second.bytes, before->first});
        before->second.bytes += block->second.bytes;
        blocks.erase(block);
        block = before;
      }
    }
    unused.insert({block->second.bytes, block->first});
  }
};

// Never deleted: tensors may outlive every other object of the process.
SharedAllocator &shared_allocator() {
  static auto *allocator = new SharedAllocator;
  return *allocator;
}

void SharedAllocator::release(void *memory) { shared_allocator().give_back(static_cast<char *>(memory)); }

void SharedAllocator::release_raw(void *memory) {
  SharedAllocator &allocator = shared_allocator();
  if (allocator.is_shared(memory)) {
    release(memory);
  } else {
    allocator.own->raw_deallocate(memory);
  }
}

// A forked child (a worker of a DataLoader) must not write into its parent's tensors: it gets a private copy of each used block in
// the place of the shared one.
void lock_before_fork() { shared_allocator().mutex.lock(); }
void unlock_in_parent() { shared_allocator().mutex.unlock(); }
void copy_in_child() {
  SharedAllocator &allocator = shared_allocator();
  allocator.make = nullptr;
  for (const auto &[at, block] : allocator.blocks) {
    void *copy = mmap(nullptr, block.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
      abort();  // the child would share memory with its parent unseen
    }
    if (block.used) {
      std::memcpy(copy, at, block.bytes);
    }
    if (mremap(copy, block.bytes, block.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
      abort();
    }
  }
  allocator.mutex.unlock();
}

}  // namespace

void install_shared_allocator(size_t least, const void *owner, MakeArena make) {
  SharedAllocator &allocator = shared_allocator();
  std::unique_lock<std::mutex> lock(allocator.mutex);
  allocator.least = least;
  allocator.owner = owner;
  allocator.make = std::move(make);
  bool first = allocator.own == nullptr;
  if (first) {
    allocator.own = c10::GetCPUAllocator();
  }
  lock.unlock();
  if (first) {
    TORCH_CHECK(pthread_atfork(lock_before_fork, unlock_in_parent, copy_in_child) == 0, "share_memory: no memory to watch forks");
    c10::SetCPUAllocator(&allocator, 1);
    TORCH_CHECK(c10::GetCPUAllocator() == &allocator, "share_memory: another allocator of CPU memory is installed already, with a higher priority");
  }
}

void stop_shared_arenas(const void *owner) {
  SharedAllocator &allocator = shared_allocator();
  std::lock_guard<std::mutex> lock(allocator.mutex);
  if (allocator.owner == owner) {
    allocator.make = nullptr;
  }
}

}  // namespace trireme
