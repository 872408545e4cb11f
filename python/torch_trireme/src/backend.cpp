// SPDX-License-Identifier: Apache-2.0
// backend.cpp: the c10d backend "trireme": collectives and messages of torch.distributed on CPU tensors over Trireme's communicators.
//
// A process group has two communicators of its own ranks: one for collectives (queue of work.hpp), one for messages (messages.hpp).
// torch_trireme/__init__.py agrees on the rendezvous and the token through the group's store and calls create().
//
// Reductions: sum, mean, product, minimum and maximum are Trireme's; bitwise ones gather and combine; complex sums are sums of
// pairs; 16-bit integers are summed as 32-bit ones, booleans are bytes. Sparse sums gather indices and values.
#include "messages.hpp"
#include "shared_allocator.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <set>

#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/Dtype.h>
#include <torch/extension.h>

namespace trireme {
namespace {

using c10d::OpType;
using c10d::ReduceOp;
template <typename T>
using Ptr = c10::intrusive_ptr<T>;

class Backend;
// The backends that are not shut down yet. A process that ends without destroy_process_group leaves its jobs at its end, before the
// libraries that their threads use are torn down.
std::mutex live_mutex;
std::set<Backend *> live;

// Forks on the way from the first process that made a group to this one. A forked child has its parent's groups as objects: their job, threads and
// shared memory are the parent's.
std::atomic<uint32_t> forks{0};

// A child has `live_mutex` free: another thread of its parent may have had it at the fork.
void count_forks() {
  static const int counted = pthread_atfork([] { live_mutex.lock(); }, [] { live_mutex.unlock(); }, [] {
    forks++;
    live_mutex.unlock();
  });
  TORCH_CHECK(counted == 0, "trireme: init_process_group: no memory to watch forks");
}

// The job that the group's ranks have joined.
struct Place {
  trm_bootstrap *bootstrap = nullptr;
  trm_comm *comm = nullptr;
};

class Backend : public c10d::Backend {
 public:
  // engine: as in trm_comm_options; empty: chosen. stall_seconds: as in trm_join_options.
  Backend(int rank, int size, const std::string &rendezvous, const std::string &token_file, milliseconds timeout, const std::string &name,
          const std::string &engine, double stall_seconds);
  ~Backend() override;

  const std::string getBackendName() const override { return "trireme"; }
  Ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(milliseconds timeout) override { options_->timeout = timeout; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}
  void abort() override { fail("the process group was aborted"); }
  void shutdown() override { end(); }
  // Ends the group. Returns whether another thread was in a collective; it gets an error.
  bool end();

  Ptr<c10d::Work> broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
  Ptr<c10d::Work> allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
  Ptr<c10d::Work> allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override { return allreduce(tensors, opts); }
  Ptr<c10d::Work> allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
  Ptr<c10d::Work> reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
  Ptr<c10d::Work> allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
  Ptr<c10d::Work> _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override;
  Ptr<c10d::Work> allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
  Ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
  Ptr<c10d::Work> gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
  Ptr<c10d::Work> scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) override;
  Ptr<c10d::Work> reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts) override;
  Ptr<c10d::Work> _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts) override;
  Ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts) override;
  Ptr<c10d::Work> alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                                const c10d::AllToAllOptions &opts) override;
  Ptr<c10d::Work> alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
  Ptr<c10d::Work> barrier(const c10d::BarrierOptions &opts) override;
  void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;
  Ptr<c10d::Work> send(Tensors &tensors, int peer, int tag) override;
  Ptr<c10d::Work> recv(Tensors &tensors, int peer, int tag) override;
  Ptr<c10d::Work> recvAnysource(Tensors &tensors, int tag) override;

  // A tensor in memory that all ranks of the host read and write in place: collectives on it need no copy.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type);
  // Lets PyTorch put tensors of at least `least` bytes into such memory: those that collectives use, or all (shared_allocator.hpp). By
  // default (`asked` false) nothing changes if another group owns the allocator or another allocator is there.
  void share_memory(size_t least, bool all, bool asked);
  const char *engine() const { return trm_comm_engine(place_.comm); }

 private:
  milliseconds limit(milliseconds timeout) const { return timeout == c10d::kUnsetTimeout ? options_->timeout : timeout; }
  template <typename Run>
  Ptr<c10d::Work> start(OpType type, const char *title, const Tensors &inputs, Tensors outputs, milliseconds timeout, bool async, Run run);
  Ptr<c10d::Work> message(OpType type, const char *title, Tensors &tensors, int peer, int tag);
  void run(trm_collective op, const char *title);
  void reduce_values(at::Tensor values, const ReduceOp &op, int root, const char *title);
  void reduce_bits(at::Tensor values, ReduceOp::RedOpType op, const char *title);
  void reduce_list(Tensors tensors, const ReduceOp &op, const char *title);
  void reduce_sparse(Tensors tensors, const char *title);
  void gather_all(at::Tensor output, at::Tensor input, const char *title);
  void gather_lists(const Tensors &outputs, at::Tensor input, const char *title);
  void scatter_sum(at::Tensor output, at::Tensor input, const ReduceOp &op, const char *title);
  void fail(const std::string &cause);
  void *values_of(const at::Tensor &t) { return reach(t, this); }
  void *take_shared(size_t bytes, trm_error *error);
  void free_shared(void *memory);
  void free_unused();

  bool is_in_child() const { return forks != forks_; }
  void check_usable(const char *title) const;

  const uint32_t forks_ = forks;
  Place place_;
  Ptr<Options> options_;
  std::atomic<uint64_t> sequence_{0};
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Messages> messages_;
  // Shared memory of tensors and arenas, by address; its size once the communicator is gone, before that 0. Then the part whose
  // tensors are gone: the thread that runs the next collective frees it.
  std::mutex shared_mutex_;
  std::map<void *, size_t> shared_;
  std::vector<void *> freed_;
};

[[noreturn]] void refuse(const char *title, const std::string &what) { TORCH_CHECK_WITH(ValueError, false, "ProcessGroupTrireme::", title, ": ", what); abort(); }

// The checks of c10d's helpers take a function that throws.
std::function<void(const std::string &)> refusal(const char *title) {
  return [title](const std::string &what) { refuse(title, what); };
}

void check_tensors(const char *title, const Tensors &tensors) {
  auto fn = refusal(title);
  c10d::assertNonEmpty(fn, tensors);
  c10d::assertDense(fn, tensors);
  c10d::assertCPU(fn, tensors);
  c10d::assertTypeAndSizesMatch(fn, tensors);
}

void check_one(const char *title, const Tensors &tensors, const char *which = "") {
  if (tensors.size() != 1) {
    refuse(title, std::string("requires a single-element ") + which + "tensor list");
  }
  check_tensors(title, tensors);
}

trm_reduction reduction_of(const ReduceOp &op, const char *title) {
  switch (static_cast<ReduceOp::RedOpType>(op)) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM: return TRM_REDUCTION_SUM;
    case ReduceOp::AVG: return TRM_REDUCTION_MEAN;
    case ReduceOp::PRODUCT: return TRM_REDUCTION_PROD;
    case ReduceOp::MIN: return TRM_REDUCTION_MIN;
    case ReduceOp::MAX: return TRM_REDUCTION_MAX;
    default: refuse(title, "Cannot use this reduce operation");
  }
}

trm_dtype dtype_of(at::ScalarType type, const char *title) {
  switch (type) {
    case at::kFloat: return TRM_FLOAT32;
    case at::kDouble: return TRM_FLOAT64;
    case at::kHalf: return TRM_FLOAT16;
    case at::kBFloat16: return TRM_BFLOAT16;
    case at::kChar: return TRM_INT8;
    case at::kByte:
    case at::kBool: return TRM_UINT8;
    case at::kInt: return TRM_INT32;
    case at::kLong: return TRM_INT64;
    default: refuse(title, std::string("Invalid scalar type ") + c10::toString(type));
  }
}

// Returns the tensor to send: the tensor itself if it is contiguous, else a contiguous copy.
at::Tensor packed(const at::Tensor &t) { return t.contiguous(); }

void copy_back(const at::Tensor &from, at::Tensor to) {
  if (!from.is_same(to)) {
    to.copy_(from);
  }
}

Backend::Backend(int rank, int size, const std::string &rendezvous, const std::string &token_file, milliseconds timeout, const std::string &name,
                 const std::string &engine, double stall_seconds)
    : c10d::Backend(rank, size), options_(c10::make_intrusive<Options>("trireme", timeout)), queue_(std::make_unique<Queue>()) {
  count_forks();
  trm_error error;
  trm_cluster_flags flags{};
  flags.rank = rank;
  flags.size = size;
  flags.rendezvous = rendezvous.c_str();
  flags.token_file = token_file.c_str();
  trm_cluster *cluster = nullptr;
  check(trm_cluster_create(&flags, &cluster, &error), error, "init_process_group");
  trm_join_options join{};
  join.timeout_seconds = std::chrono::duration<double>(timeout).count();
  join.stall_seconds = stall_seconds;
  trm_status status = trm_cluster_join(cluster, &join, &place_.bootstrap, &error);
  trm_cluster_destroy(cluster);
  check(status, error, "init_process_group");
  trm_comm_options options{};
  options.timeout_seconds = std::chrono::duration<double>(timeout).count();
  options.name = name.c_str();
  options.engine = engine.empty() ? nullptr : engine.c_str();
  trm_comm *messages = nullptr;
  status = trm_comm_create(place_.bootstrap, &options, &place_.comm, &error);
  if (status == TRM_OK && size > 1) {
    options.timeout_seconds = 1e8; /* a receive may wait for as long as the caller wants: Messages has its own limits */
    options.report_seconds = 1e8;
    options.name = "messages";
    status = trm_comm_create(place_.bootstrap, &options, &messages, &error);
  }
  if (status != TRM_OK) {
    trm_comm_destroy(place_.comm);
    trm_cluster_leave(place_.bootstrap);
    check(status, error, "init_process_group");
  }
  if (size > 1) {
    messages_ = std::make_unique<Messages>(messages, rank, size);
  }
  std::lock_guard<std::mutex> lock(live_mutex);
  live.insert(this);
}

Backend::~Backend() { end(); }

bool Backend::end() {
  {
    std::lock_guard<std::mutex> lock(live_mutex);
    live.erase(this);
  }
  if (place_.comm == nullptr) {
    return false;
  }
  if (is_in_child()) {
    (void)queue_.release();
    (void)messages_.release();
    place_ = {};
    return false;
  }
  bool waits = queue_->is_in_caller();
  if (waits) {  // the ranks end with this error, too
    fail(c10::str("rank ", rank_, " has ended the process group while one of its threads was in a collective"));
  }
  queue_->stop();
  messages_.reset();
  std::vector<void *> empty = stop_shared_arenas(this);
  std::lock_guard<std::mutex> lock(shared_mutex_);
  for (void *arena : empty) {
    shared_.erase(arena);
    freed_.push_back(arena);
  }
  free_unused();
  for (auto &[memory, bytes] : shared_) {  // its tensors live on
    bytes = trm_comm_keep_shared(place_.comm, memory);
  }
  trm_comm_destroy(place_.comm);
  trm_cluster_leave(place_.bootstrap);
  place_ = {};
  return waits;
}

// Frees the memory whose tensors are gone. The mutex is held; no collective is running.
void Backend::free_unused() {
  for (void *memory : freed_) {
    trm_comm_free_shared(place_.comm, memory);
  }
  freed_.clear();
}

// Returns memory that the ranks of the host share, or null and the reason.
void *Backend::take_shared(size_t bytes, trm_error *error) {
  std::lock_guard<std::mutex> lock(shared_mutex_);
  void *memory = place_.comm != nullptr ? trm_comm_alloc_shared(place_.comm, bytes, error) : nullptr;
  if (memory != nullptr) {
    shared_[memory] = 0;
  }
  return memory;
}

void Backend::free_shared(void *memory) {
  if (is_in_child()) {
    return;  // the mutex may be held for ever: a thread of the parent had it when the process was forked
  }
  std::lock_guard<std::mutex> lock(shared_mutex_);
  size_t kept = shared_[memory];
  shared_.erase(memory);
  if (place_.comm != nullptr) {
    freed_.push_back(memory);
  } else {
    munmap(memory, kept);
  }
}

// Throws where a call would find no job: in a forked child, and after the end of the group.
void Backend::check_usable(const char *title) const {
  TORCH_CHECK(!is_in_child(), title, ": this process was forked after init_process_group and is no rank of its parent's group; call init_process_group in it, or communicate in its parent");
  TORCH_CHECK(place_.comm != nullptr, title, ": the process group was destroyed");
}

void Backend::fail(const std::string &cause) {
  if (is_in_child()) {
    return;
  }
  trm_error error{};
  error.status = TRM_CANCELLED;
  error.rank = rank_;
  snprintf(error.message, sizeof error.message, "%s", cause.c_str());
  if (place_.comm != nullptr) {
    trm_comm_abort(place_.comm, &error);
  }
  if (messages_) {
    messages_->abort(cause);
  }
}

template <typename Run>
Ptr<c10d::Work> Backend::start(OpType type, const char *title, const Tensors &inputs, Tensors outputs, milliseconds timeout, bool async, Run run) {
  check_usable(title);
  auto work = c10::make_intrusive<Work>(rank_, type, title, inputs, std::move(outputs), limit(timeout), sequence_++);
  queue_->add(
      work,
      [this, run = std::move(run)]() mutable {
        at::NoGradGuard no_grad;
        run();
      },
      !async);
  return work;
}

void Backend::run(trm_collective op, const char *title) {
  {
    std::lock_guard<std::mutex> lock(shared_mutex_);
    free_unused();
  }
  op.tag = title;
  trm_error error;
  check(trm_comm_run(place_.comm, &op, &error), error, title);
}

// Reduces `values` over the ranks in place; on root alone where root >= 0.
void Backend::reduce_values(at::Tensor values, const ReduceOp &op, int root, const char *title) {
  auto kind = static_cast<ReduceOp::RedOpType>(op);
  TORCH_CHECK(kind != ReduceOp::AVG || values.scalar_type() != at::kBool, "Cannot use ReduceOp.AVG with boolean tensors in ", title, "; convert them");
  if (kind == ReduceOp::BAND || kind == ReduceOp::BOR || kind == ReduceOp::BXOR) {
    at::Tensor result = root < 0 || root == rank_ ? values : values.clone();
    reduce_bits(result, kind, title);
    return;
  }
  if (values.is_complex()) {
    TORCH_CHECK(kind == ReduceOp::SUM || kind == ReduceOp::AVG, "all_reduce does not support ", title, " of complex tensors but for sum and mean");
    at::Tensor whole = packed(values);
    reduce_values(at::view_as_real(whole), op, root, title);
    copy_back(whole, values);
    return;
  }
  if (values.scalar_type() == at::kShort) {
    at::Tensor wide = values.to(at::kInt, false, true, at::MemoryFormat::Contiguous);
    reduce_values(wide, op, root, title);
    if (root < 0 || root == rank_) {
      values.copy_(wide);
    }
    return;
  }
  bool keeps = root < 0 || root == rank_;
  at::Tensor flat = packed(values);
  if (kind == ReduceOp::PREMUL_SUM) {
    auto *factor = static_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK(factor != nullptr, "PREMUL_SUM needs its factor");
    at::Tensor scaled = factor->tensor_factor.defined() ? flat * factor->tensor_factor : flat * factor->double_factor;
    if (keeps) {
      flat.copy_(scaled);
    } else {
      flat = scaled.to(flat.scalar_type());
    }
  }
  trm_collective c{};
  c.kind = root < 0 ? TRM_ALLREDUCE : TRM_REDUCE;
  c.send = keeps ? nullptr : values_of(flat);
  c.recv = keeps ? values_of(flat) : nullptr;
  c.count = flat.numel();
  c.dtype = dtype_of(flat.scalar_type(), title);
  c.reduce = reduction_of(op, title);
  c.root = root < 0 ? 0 : root;
  if (values.scalar_type() == at::kBool && c.reduce == TRM_REDUCTION_SUM) {
    c.reduce = TRM_REDUCTION_MAX; /* 1 + 1 is true, not 2 */
  } else if (values.scalar_type() == at::kBool && c.reduce == TRM_REDUCTION_PROD) {
    c.reduce = TRM_REDUCTION_MIN;
  }
  run(c, title);
  if (keeps) {
    copy_back(flat, values);
  }
}

void Backend::reduce_bits(at::Tensor values, ReduceOp::RedOpType op, const char *title) {
  TORCH_CHECK(!values.is_floating_point() && !values.is_complex(), "Cannot use ReduceOp.", op == ReduceOp::BAND ? "BAND" : op == ReduceOp::BOR ? "BOR" : "BXOR",
              " with non-integral dtype");
  at::Tensor flat = packed(values);
  std::vector<int64_t> sizes{static_cast<int64_t>(size_)};
  sizes.insert(sizes.end(), flat.sizes().begin(), flat.sizes().end());
  at::Tensor all = at::empty(sizes, flat.options());
  gather_all(all, flat, title);
  at::Tensor result = all[0].clone();
  for (int r = 1; r < size_; r++) {
    if (op == ReduceOp::BAND) {
      result.bitwise_and_(all[r]);
    } else if (op == ReduceOp::BOR) {
      result.bitwise_or_(all[r]);
    } else {
      result.bitwise_xor_(all[r]);
    }
  }
  values.copy_(result);
}

// Several tensors of one rank count as tensors of as many ranks: all get the result.
void Backend::reduce_list(Tensors tensors, const ReduceOp &op, const char *title) {
  auto kind = static_cast<ReduceOp::RedOpType>(op);
  TORCH_CHECK(tensors.size() == 1 || kind != ReduceOp::AVG, "the mean of several tensors of a rank is not defined");
  for (size_t i = 1; i < tensors.size(); i++) {
    at::Tensor &first = tensors[0];
    switch (kind) {
      case ReduceOp::PRODUCT: first.mul_(tensors[i]); break;
      case ReduceOp::MIN: first.copy_(at::minimum(first, tensors[i])); break;
      case ReduceOp::MAX: first.copy_(at::maximum(first, tensors[i])); break;
      case ReduceOp::BAND: first.bitwise_and_(tensors[i]); break;
      case ReduceOp::BOR: first.bitwise_or_(tensors[i]); break;
      case ReduceOp::BXOR: first.bitwise_xor_(tensors[i]); break;
      default: first.add_(tensors[i]);
    }
  }
  reduce_values(tensors[0], op, -1, title);
  for (size_t i = 1; i < tensors.size(); i++) {
    tensors[i].copy_(tensors[0]);
  }
}

// The sum of sparse tensors: indices and values of all ranks one after the other, coalesced. First the ranks compare the forms.
void Backend::reduce_sparse(Tensors tensors, const char *title) {
  at::Tensor sum = tensors[0];
  for (size_t i = 1; i < tensors.size(); i++) {
    sum = sum + tensors[i];
  }
  sum = sum.coalesce();
  constexpr int64_t kMostDimensions = 16;
  TORCH_CHECK(sum.dim() <= kMostDimensions, title, ": a sparse tensor of at most ", kMostDimensions, " dimensions is needed; found ", sum.dim());
  std::vector<int64_t> form{sum._nnz(), static_cast<int64_t>(sum.scalar_type()), sum.sparse_dim(), sum.dim()};
  form.insert(form.end(), sum.sizes().begin(), sum.sizes().end());
  form.resize(4 + kMostDimensions);
  at::Tensor forms = at::empty({size_, static_cast<int64_t>(form.size())}, at::kLong);
  gather_all(forms, at::tensor(form, at::kLong), title);
  for (int r = 0; r < size_; r++) {
    const int64_t *theirs = forms[r].data_ptr<int64_t>();
    if (!std::equal(form.begin() + 1, form.end(), theirs + 1)) {
      C10_THROW_ERROR(DistBackendError, c10::str("trireme: ", title, ": ranks disagree: rank ", r, " has a sparse tensor of size ", at::IntArrayRef(theirs + 4, theirs[3]), " and type ",
                                                 static_cast<at::ScalarType>(theirs[1]), ", rank ", rank_, " one of size ", sum.sizes(), " and type ", sum.scalar_type(),
                                                 "; sizes, types and numbers of sparse dimensions must be equal"));
    }
  }
  at::Tensor indices = sum._indices().t().contiguous(), values = sum._values().contiguous();
  Tensors all_indices, all_values;
  for (int r = 0; r < size_; r++) {
    std::vector<int64_t> i{forms[r][0].item<int64_t>(), indices.size(1)}, v = values.sizes().vec();
    v[0] = i[0];
    all_indices.push_back(at::empty(i, indices.options()));
    all_values.push_back(at::empty(v, values.options()));
  }
  gather_lists(all_indices, indices, title);
  gather_lists(all_values, values, title);
  at::Tensor whole = at::sparse_coo_tensor(at::cat(all_indices).t(), at::cat(all_values), sum.sizes()).coalesce();
  for (at::Tensor &t : tensors) {
    t.copy_(whole);
  }
}

// output: the inputs of all ranks, in rank order.
void Backend::gather_all(at::Tensor output, at::Tensor input, const char *title) {
  at::Tensor in = packed(input), out = output.is_contiguous() ? output : at::empty_like(output, at::MemoryFormat::Contiguous);
  trm_collective c{};
  c.kind = TRM_ALLGATHER;
  c.count = static_cast<int64_t>(in.nbytes());
  c.dtype = TRM_UINT8;
  c.recv = values_of(out);
  bool own_place = in.data_ptr() == static_cast<char *>(out.data_ptr()) + rank_ * c.count;
  c.send = own_place ? nullptr : values_of(in);
  run(c, title);
  copy_back(out, output);
}

// outputs: one for each rank; their sizes may differ.
void Backend::gather_lists(const Tensors &outputs, at::Tensor input, const char *title) {
  std::vector<int64_t> bytes;
  int64_t all = 0;
  for (const at::Tensor &t : outputs) {
    bytes.push_back(static_cast<int64_t>(t.nbytes()));
    all += bytes.back();
  }
  at::Tensor flat = at::empty({all}, at::kByte), in = packed(input);
  trm_collective c{};
  c.kind = TRM_ALLGATHERV;
  c.send = values_of(in);
  c.recv = values_of(flat);
  c.counts = bytes.data();
  c.dtype = TRM_UINT8;
  run(c, title);
  int64_t at_byte = 0;
  for (size_t r = 0; r < outputs.size(); r++) {
    at::Tensor part = outputs[r];
    if (bytes[r] > 0) {
      part.copy_(at::from_blob(static_cast<char *>(flat.data_ptr()) + at_byte, part.sizes(), part.options()));
    }
    at_byte += bytes[r];
  }
}

void Backend::scatter_sum(at::Tensor output, at::Tensor input, const ReduceOp &op, const char *title) {
  auto kind = static_cast<ReduceOp::RedOpType>(op);
  at::Tensor in = packed(input);
  bool direct = kind != ReduceOp::PREMUL_SUM && kind != ReduceOp::BAND && kind != ReduceOp::BOR && kind != ReduceOp::BXOR && !in.is_complex() &&
                in.scalar_type() != at::kShort && in.scalar_type() != at::kBool;
  if (!direct) { /* rare kinds: the whole reduction, and this rank's part of it */
    at::Tensor whole = in.clone();
    reduce_values(whole, op, -1, title);
    output.copy_(whole.reshape({size_, -1})[rank_].reshape(output.sizes()));
    return;
  }
  at::Tensor out = output.is_contiguous() ? output : at::empty_like(output, at::MemoryFormat::Contiguous);
  at::Tensor apart; /* an output inside the input: its values are moved afterwards */
  char *begin = static_cast<char *>(in.data_ptr()), *end = begin + in.nbytes(), *own = static_cast<char *>(out.data_ptr());
  if (own >= begin && own < end) {
    apart = at::empty_like(out);
  }
  trm_collective c{};
  c.kind = TRM_REDUCE_SCATTER;
  c.send = values_of(in);
  c.recv = values_of(apart.defined() ? apart : out);
  c.count = out.numel();
  c.dtype = dtype_of(in.scalar_type(), title);
  c.reduce = reduction_of(op, title);
  run(c, title);
  if (apart.defined()) {
    out.copy_(apart);
  }
  copy_back(out, output);
}

Ptr<c10d::Work> Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
  const char *title = "broadcast";
  auto fn = refusal(title);
  c10d::assertRootRank(fn, opts.rootRank, size_);
  c10d::assertRootTensor(fn, opts.rootTensor, static_cast<int64_t>(tensors.size()));
  check_tensors(title, tensors);
  return start(OpType::BROADCAST, "trireme:broadcast", tensors, tensors, opts.timeout, opts.asyncOp, [this, tensors, opts, title]() {
    at::Tensor root = tensors[opts.rootTensor], flat = packed(root);
    trm_collective c{};
    c.kind = TRM_BROADCAST;
    c.recv = values_of(flat);
    c.count = static_cast<int64_t>(flat.nbytes());
    c.dtype = TRM_UINT8;
    c.root = static_cast<int32_t>(opts.rootRank);
    run(c, title);
    for (at::Tensor t : tensors) {
      copy_back(flat, t);
    }
  });
}

Ptr<c10d::Work> Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
  const char *title = "all_reduce";
  auto fn = refusal(title);
  c10d::assertNonEmpty(fn, tensors);
  bool sparse = tensors[0].layout() == at::kSparse;
  if (sparse) {
    c10d::assertCPU(fn, tensors);
    for (const at::Tensor &t : tensors) {
      if (t.layout() != at::kSparse || t.sizes() != tensors[0].sizes() || t.scalar_type() != tensors[0].scalar_type()) {
        refuse(title, "invalid tensor: sparse tensors of a list have one layout, type and size");
      }
    }
    if (static_cast<ReduceOp::RedOpType>(opts.reduceOp) != ReduceOp::SUM) {
      refuse(title, "unsupported reduction operation (allreduce of sparse tensors only works with ReduceOp.SUM)");
    }
  } else {
    check_tensors(title, tensors);
    dtype_of(tensors[0].is_complex() || tensors[0].scalar_type() == at::kShort ? at::kFloat : tensors[0].scalar_type(), title);
  }
  return start(OpType::ALLREDUCE, "trireme:all_reduce", tensors, tensors, opts.timeout, opts.asyncOp, [this, tensors, opts, title, sparse]() {
    if (sparse) {
      reduce_sparse(tensors, title);
    } else {
      reduce_list(tensors, opts.reduceOp, title);
    }
  });
}

Ptr<c10d::Work> Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) {
  const char *title = "allreduce_coalesced";
  auto fn = refusal(title);
  c10d::assertNonEmpty(fn, tensors);
  c10d::assertDense(fn, tensors);
  c10d::assertCPU(fn, tensors);
  for (const at::Tensor &t : tensors) {
    if (t.layout() != at::kStrided || t.device() != tensors[0].device() || t.scalar_type() != tensors[0].scalar_type()) {
      refuse(title, "tensors must all have the same type and device");
    }
  }
  return start(OpType::ALLREDUCE_COALESCED, "trireme:all_reduce", tensors, tensors, opts.timeout, opts.asyncOp, [this, tensors, opts, title]() {
    Tensors flats;
    for (const at::Tensor &t : tensors) {
      flats.push_back(t.reshape({-1}));
    }
    at::Tensor flat = at::cat(flats);
    reduce_values(flat, opts.reduceOp, -1, title);
    int64_t begin = 0;
    for (at::Tensor t : tensors) {
      t.copy_(flat.narrow(0, begin, t.numel()).reshape(t.sizes()));
      begin += t.numel();
    }
  });
}

Ptr<c10d::Work> Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
  const char *title = "reduce";
  auto fn = refusal(title);
  c10d::assertRootRank(fn, opts.rootRank, size_);
  c10d::assertRootTensor(fn, opts.rootTensor, static_cast<int64_t>(tensors.size()));
  check_one(title, tensors);
  return start(OpType::REDUCE, "trireme:reduce", tensors, tensors, opts.timeout, opts.asyncOp,
               [this, tensors, opts, title]() { reduce_values(tensors[0], opts.reduceOp, static_cast<int>(opts.rootRank), title); });
}

Ptr<c10d::Work> Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) {
  const char *title = "allgather";
  auto fn = refusal(title);
  c10d::assertNonEmpty(fn, inputs);
  if (inputs.size() != outputs.size()) {
    refuse(title, "requires input/output tensor lists to have the same length");
  }
  for (const Tensors &list : outputs) {
    if (list.size() != inputs.size() * size_) {
      refuse(title, c10::str("invalid output tensor list (expected length ", inputs.size() * size_, ", got ", list.size(), ")"));
    }
    for (const at::Tensor &t : list) {
      if (t.scalar_type() != inputs[0].scalar_type()) {
        refuse(title, c10::str("invalid tensor type (expected ", inputs[0].toString(), ", got ", t.toString(), ")"));
      }
    }
    if (list[rank_ * inputs.size()].sizes() != inputs[0].sizes()) {
      refuse(title, c10::str("invalid tensor size (expected ", inputs[0].sizes(), ", got ", list[rank_ * inputs.size()].sizes(), ")"));
    }
  }
  c10d::assertDense(fn, inputs);
  c10d::assertCPU(fn, inputs);
  Tensors results = outputs[0];
  return start(OpType::ALLGATHER, "trireme:all_gather", inputs, results, opts.timeout, opts.asyncOp, [this, outputs, inputs, title]() {
    if (inputs.size() == 1) {
      gather_lists(outputs[0], inputs[0], title);
      return;
    }
    at::Tensor own = at::stack(inputs), all;
    std::vector<int64_t> sizes = own.sizes().vec();
    sizes[0] *= size_;
    all = at::empty(sizes, own.options());
    gather_all(all, own, title);
    for (const Tensors &list : outputs) {
      for (size_t i = 0; i < list.size(); i++) {
        at::Tensor t = list[i];
        t.copy_(all[static_cast<int64_t>(i)]);
      }
    }
  });
}

Ptr<c10d::Work> Backend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

Ptr<c10d::Work> Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) {
  const char *title = "all_gather_into_tensor";
  if (outputs.size() != inputs.size()) {
    refuse(title, "requires input/output tensor lists to have the same length");
  }
  for (size_t i = 0; i < inputs.size(); i++) {
    check_one(title, {inputs[i]});
    check_one(title, {outputs[i]});
    if (outputs[i].scalar_type() != inputs[i].scalar_type() || outputs[i].numel() != inputs[i].numel() * size_) {
      refuse(title, "output tensor size must be equal to world_size times input tensor size, of one type");
    }
  }
  return start(OpType::_ALLGATHER_BASE, "trireme:all_gather", inputs, outputs, opts.timeout, opts.asyncOp, [this, outputs, inputs, title]() {
    for (size_t i = 0; i < inputs.size(); i++) {
      gather_all(outputs[i], inputs[i], title);
    }
  });
}

Ptr<c10d::Work> Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) {
  const char *title = "allgather_coalesced";
  auto fn = refusal(title);
  c10d::assertNonEmpty(fn, inputs);
  c10d::assertDense(fn, inputs);
  c10d::assertCPU(fn, inputs);
  if (outputs.size() != static_cast<size_t>(size_)) {
    refuse(title, "output lists should be equal to world size");
  }
  Tensors results;
  for (const Tensors &list : outputs) {
    if (list.size() != inputs.size()) {
      refuse(title, c10::str("invalid output size: (expected length ", inputs.size(), ", got ", list.size(), ")"));
    }
    for (size_t i = 0; i < list.size(); i++) {
      if (list[i].sizes() != inputs[i].sizes() || list[i].scalar_type() != inputs[i].scalar_type()) {
        refuse(title, c10::str("invalid size of output tensor at index ", i, " (expected length ", inputs[i].sizes(), ", got ", list[i].sizes(), ")"));
      }
    }
    results.insert(results.end(), list.begin(), list.end());
  }
  return start(OpType::ALLGATHER_COALESCED, "trireme:all_gather", inputs, results, opts.timeout, opts.asyncOp, [this, outputs, inputs, title]() {
    for (size_t i = 0; i < inputs.size(); i++) {
      Tensors one;
      for (const Tensors &list : outputs) {
        one.push_back(list[i]);
      }
      gather_lists(one, inputs[i], title);
    }
  });
}

Ptr<c10d::Work> Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) {
  const char *title = "gather";
  auto fn = refusal(title);
  c10d::assertRootRank(fn, opts.rootRank, size_);
  check_one(title, inputs, "input ");
  bool root = opts.rootRank == rank_;
  if (root && (outputs.size() != 1)) {
    refuse(title, "requires a single-element output list containing a list with " + std::to_string(size_) + " tensors.");
  }
  if (root && outputs[0].size() != static_cast<size_t>(size_)) {
    refuse(title, c10::str("Incorrect output list size ", outputs[0].size(), ". Output list size should be ", size_, ", same as size of the process group."));
  }
  if (!root && !outputs.empty()) {
    refuse(title, "requires empty output on non-root");
  }
  Tensors results = root ? outputs[0] : Tensors();
  if (root) {
    c10d::assertTypeAndSizesMatch(fn, results, inputs[0].options(), inputs[0].sizes());
  }
  return start(OpType::GATHER, "trireme:gather", inputs, results, opts.timeout, opts.asyncOp, [this, results, inputs, opts, title, root]() {
    at::Tensor in = packed(inputs[0]), all;
    trm_collective c{};
    c.kind = TRM_GATHER;
    c.send = values_of(in);
    c.count = static_cast<int64_t>(in.nbytes());
    c.dtype = TRM_UINT8;
    c.root = static_cast<int32_t>(opts.rootRank);
    if (root) {
      all = at::empty({size_ * in.numel()}, in.options());
      c.recv = values_of(all);
    }
    run(c, title);
    for (size_t r = 0; r < results.size(); r++) {
      at::Tensor t = results[r];
      t.copy_(all.narrow(0, static_cast<int64_t>(r) * in.numel(), in.numel()).reshape(t.sizes()));
    }
  });
}

Ptr<c10d::Work> Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) {
  const char *title = "scatter";
  auto fn = refusal(title);
  c10d::assertRootRank(fn, opts.rootRank, size_);
  check_one(title, outputs, "output ");
  bool root = opts.rootRank == rank_;
  if (root && inputs.size() != 1) {
    refuse(title, "requires a single-element input list containing a list with " + std::to_string(size_) + " tensors");
  }
  if (root && inputs[0].size() != static_cast<size_t>(size_)) {
    refuse(title, c10::str("Incorrect input list size ", inputs[0].size(), ". Input list size should be ", size_, ", same as size of the process group."));
  }
  if (!root && !inputs.empty()) {
    refuse(title, "requires empty input on non-root");
  }
  Tensors parts = root ? inputs[0] : Tensors();
  if (root) {
    c10d::assertTypeAndSizesMatch(fn, parts, outputs[0].options(), outputs[0].sizes());
  }
  return start(OpType::SCATTER, "trireme:scatter", parts, outputs, opts.timeout, opts.asyncOp, [this, outputs, parts, opts, title, root]() {
    at::Tensor out = outputs[0].is_contiguous() ? outputs[0] : at::empty_like(outputs[0], at::MemoryFormat::Contiguous), all;
    trm_collective c{};
    c.kind = TRM_SCATTER;
    c.recv = values_of(out);
    c.count = static_cast<int64_t>(out.nbytes());
    c.dtype = TRM_UINT8;
    c.root = static_cast<int32_t>(opts.rootRank);
    if (root) {
      all = at::stack(parts).contiguous();
      c.send = values_of(all);
    }
    run(c, title);
    copy_back(out, outputs[0]);
  });
}

Ptr<c10d::Work> Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts) {
  const char *title = "reduce_scatter";
  check_one(title, outputs, "output ");
  if (inputs.size() != 1 || inputs[0].size() != static_cast<size_t>(size_)) {
    refuse(title, "invalid input tensor list size, must be world size");
  }
  c10d::assertTypeAndSizesMatch(refusal(title), inputs[0], outputs[0].options(), outputs[0].sizes());
  Tensors parts = inputs[0];
  return start(OpType::REDUCE_SCATTER, "trireme:reduce_scatter", parts, outputs, opts.timeout, opts.asyncOp,
               [this, outputs, parts, opts, title]() { scatter_sum(outputs[0], at::stack(parts), opts.reduceOp, title); });
}

Ptr<c10d::Work> Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

Ptr<c10d::Work> Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts) {
  const char *title = "reduce_scatter_tensor";
  if (outputs.size() != inputs.size()) {
    refuse(title, "requires input/output tensor lists to have the same length");
  }
  for (size_t i = 0; i < inputs.size(); i++) {
    check_one(title, {inputs[i]});
    check_one(title, {outputs[i]});
    if (outputs[i].scalar_type() != inputs[i].scalar_type() || inputs[i].numel() != outputs[i].numel() * size_) {
      refuse(title, "input tensor size must be equal to world_size times output tensor size, of one type");
    }
  }
  return start(OpType::_REDUCE_SCATTER_BASE, "trireme:reduce_scatter", inputs, outputs, opts.timeout, opts.asyncOp, [this, outputs, inputs, opts, title]() {
    for (size_t i = 0; i < inputs.size(); i++) {
      scatter_sum(outputs[i], inputs[i], opts.reduceOp, title);
    }
  });
}

Ptr<c10d::Work> Backend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                                       const c10d::AllToAllOptions &opts) {
  const char *title = "all_to_all_single";
  check_one(title, {input});
  check_one(title, {output});
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  // Splits count rows; bytes travel.
  auto bytes_of = [this](const at::Tensor &t, const std::vector<int64_t> &splits) {
    std::vector<int64_t> bytes(size_);
    int64_t row = t.dim() == 0 || t.size(0) == 0 ? 0 : static_cast<int64_t>(t.nbytes()) / t.size(0);
    for (int r = 0; r < size_; r++) {
      bytes[r] = splits.empty() ? static_cast<int64_t>(t.nbytes()) / size_ : splits[r] * row;
    }
    return bytes;
  };
  std::vector<int64_t> sent = bytes_of(input, input_splits), received = bytes_of(output, output_splits);
  return start(OpType::ALLTOALL_BASE, "trireme:all_to_all", {input}, {output}, opts.timeout, opts.asyncOp, [this, input, output, sent, received, title]() {
    at::Tensor in = packed(input), out = output.is_contiguous() ? output : at::empty_like(output, at::MemoryFormat::Contiguous);
    trm_collective c{};
    c.kind = TRM_ALLTOALLV;
    c.send = values_of(in);
    c.recv = values_of(out);
    c.counts = sent.data();
    c.recv_counts = received.data();
    c.dtype = TRM_UINT8;
    run(c, title);
    copy_back(out, output);
  });
}

Ptr<c10d::Work> Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) {
  const char *title = "all_to_all";
  if (inputs.size() != static_cast<size_t>(size_) || outputs.size() != static_cast<size_t>(size_)) {
    refuse(title, "input and output lists have one tensor for each rank");
  }
  for (size_t r = 0; r < inputs.size(); r++) {
    check_one(title, {inputs[r]});
    check_one(title, {outputs[r]});
  }
  return start(OpType::ALLTOALL, "trireme:all_to_all", inputs, outputs, opts.timeout, opts.asyncOp, [this, inputs, outputs, title]() {
    std::vector<int64_t> sent, received;
    Tensors parts;
    int64_t all = 0;
    for (int r = 0; r < size_; r++) {
      sent.push_back(static_cast<int64_t>(inputs[r].nbytes()));
      received.push_back(static_cast<int64_t>(outputs[r].nbytes()));
      all += received.back();
      parts.push_back(packed(inputs[r]).reshape({-1}).view(at::kByte));
    }
    at::Tensor in = at::cat(parts), out = at::empty({all}, at::kByte);
    trm_collective c{};
    c.kind = TRM_ALLTOALLV;
    c.send = values_of(in);
    c.recv = values_of(out);
    c.counts = sent.data();
    c.recv_counts = received.data();
    c.dtype = TRM_UINT8;
    run(c, title);
    int64_t begin = 0;
    for (int r = 0; r < size_; r++) {
      at::Tensor t = outputs[r];
      if (received[r] > 0) {
        t.copy_(at::from_blob(static_cast<char *>(out.data_ptr()) + begin, t.sizes(), t.options()));
      }
      begin += received[r];
    }
  });
}

Ptr<c10d::Work> Backend::barrier(const c10d::BarrierOptions &opts) {
  return start(OpType::BARRIER, "trireme:barrier", {}, {}, opts.timeout, opts.asyncOp, [this]() {
    trm_collective c{};
    c.kind = TRM_BARRIER;
    run(c, "barrier");
  });
}

Ptr<c10d::Work> Backend::message(OpType type, const char *title, Tensors &tensors, int peer, int tag) {
  bool any = type == OpType::RECVANYSOURCE, sends = type == OpType::SEND;
  const char *name = sends ? "send" : "recv";
  check_usable(title);
  check_one(name, tensors);
  TORCH_CHECK(tag >= 0, "Tag must be nonnegative");
  TORCH_CHECK(any || (peer >= 0 && peer < size_ && peer != rank_), "trireme: ", name, ": rank ", peer, " is not another rank of this group of ", size_);
  TORCH_CHECK(messages_ != nullptr, "trireme: ", name, ": this group has one rank");
  auto work = c10::make_intrusive<Work>(rank_, type, title, tensors, sends ? Tensors() : tensors, options_->timeout, sequence_.load());
  if (sends) {
    messages_->send(work, tensors[0], peer, tag, options_->timeout);
  } else {
    messages_->receive(work, tensors[0], any ? Messages::kAnySource : peer, tag, options_->timeout);
  }
  return work;
}

Ptr<c10d::Work> Backend::send(Tensors &tensors, int peer, int tag) { return message(OpType::SEND, "trireme:send", tensors, peer, tag); }
Ptr<c10d::Work> Backend::recv(Tensors &tensors, int peer, int tag) { return message(OpType::RECV, "trireme:recv", tensors, peer, tag); }
Ptr<c10d::Work> Backend::recvAnysource(Tensors &tensors, int tag) { return message(OpType::RECVANYSOURCE, "trireme:recvAnySource", tensors, -1, tag); }

// Rank 0 receives from every rank and answers every rank: it can name those that do not come.
void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) {
  constexpr int64_t kArrived = -1, kAnswer = -2;
  milliseconds timeout = limit(opts.timeout);
  check_usable("trireme:monitored_barrier");
  if (size_ == 1) {
    return;
  }
  at::Tensor token = at::zeros({1}, at::kInt);
  auto begin = [&](bool sends, int peer, int64_t tag, milliseconds how_long) {
    at::Tensor t = sends ? token : token.clone();
    auto work = c10::make_intrusive<Work>(rank_, OpType::BARRIER, "trireme:monitored_barrier", Tensors(), Tensors(), how_long, sequence_.load());
    if (sends) {
      messages_->send(work, t, peer, tag, how_long);
    } else {
      messages_->receive(work, t, peer, tag, how_long);
    }
    return work;
  };
  std::string cause; /* of the first message that failed */
  auto passes = [&](const WorkPtr &work) {
    try {
      work->wait(timeout + milliseconds(6000));
      return true;
    } catch (const std::exception &error) {
      std::string text = error.what();
      cause = cause.empty() ? text.substr(0, text.find('\n')) : cause;
      return false;
    }
  };
  if (rank_ != 0) {
    WorkPtr sent = begin(true, 0, kArrived, timeout), answer = begin(false, 0, kAnswer, timeout + milliseconds(5000));
    if (!passes(sent) || !passes(answer)) {
      TORCH_CHECK(false, "Rank ", rank_, " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank. ", cause);
    }
    return;
  }
  TORCH_CHECK(timeout.count() > 0, "Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms");
  std::vector<WorkPtr> arrivals;
  std::vector<int> missing;
  for (int r = 1; r < size_; r++) {
    arrivals.push_back(begin(false, r, kArrived, timeout));
  }
  for (int r = 1; r < size_; r++) {
    if (passes(arrivals[r - 1])) {
      continue;
    }
    missing.push_back(r);
    if (!wait_all_ranks) {
      break;
    }
  }
  if (!missing.empty()) {
    TORCH_CHECK(false, "[Rank 0]: Rank", missing.size() > 1 ? "s " : " ", c10::Join(", ", missing), " failed to pass monitoredBarrier in ", timeout.count(), " ms: ", cause);
  }
  for (int r = 1; r < size_; r++) {
    WorkPtr answer = begin(true, r, kAnswer, timeout);
    TORCH_CHECK(passes(answer), "[Rank 0]: Rank ", r, " failed to pass monitoredBarrier in ", timeout.count(), " ms: ", cause);
  }
}

at::Tensor Backend::empty(at::IntArrayRef sizes, at::ScalarType type) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
  for (int64_t n : sizes) {
    TORCH_CHECK(n >= 0 && !__builtin_mul_overflow(bytes, n, &bytes), "trireme: empty: a shape of sizes 0 and above, with fewer than 2^63 bytes, is needed; found ", sizes);
  }
  check_usable("trireme: empty");
  trm_error error{};
  void *memory = take_shared(bytes > 0 ? bytes : 1, &error);
  TORCH_CHECK(memory != nullptr, "trireme: empty: no shared memory for ", bytes, " bytes: ", error.message);
  auto self = Ptr<Backend>::reclaim_copy(this);
  return at::from_blob(memory, sizes, [self](void *gone) { self->free_shared(gone); }, at::TensorOptions().dtype(type));
}

void Backend::share_memory(size_t least, bool all, bool asked) {
  check_usable("trireme: share_memory");
  if (!asked && has_shared_arenas()) {
    return;
  }
  bool installed = install_shared_allocator({least, all, this, [this](size_t bytes) { return take_shared(bytes, nullptr); }});
  TORCH_CHECK(installed || !asked, "trireme: share_memory: another allocator of CPU memory is installed; call share_memory before it is, or use torch_trireme.empty");
}

bool shutdown_all() {
  std::set<Backend *> all;
  {
    std::lock_guard<std::mutex> lock(live_mutex);
    all.swap(live);
  }
  bool waited = false;
  for (Backend *backend : all) {
    waited = backend->end() || waited;
  }
  return waited;
}

Backend &of(const Ptr<c10d::Backend> &backend) {
  auto *ours = dynamic_cast<Backend *>(backend.get());
  TORCH_CHECK(ours != nullptr, "this process group's backend is not trireme");
  return *ours;
}

}  // namespace
}  // namespace trireme

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace trireme;
  std::string built = c10::str(TRM_VERSION_MAJOR, ".", TRM_VERSION_MINOR, ".", TRM_VERSION_PATCH), found = trm_version();
  if (found != built) {
    throw py::import_error(c10::str("libtrireme is of another version: found ", found, ", expected ", built));
  }
  m.def(
      "create",
      [](int rank, int size, const std::string &rendezvous, const std::string &token_file, double seconds, const std::string &name, const std::string &engine,
         double stall_seconds) {
        py::gil_scoped_release without_gil;
        return Ptr<c10d::Backend>(
            c10::make_intrusive<Backend>(rank, size, rendezvous, token_file, milliseconds(static_cast<int64_t>(seconds * 1000)), name, engine, stall_seconds));
      },
      py::arg("rank"), py::arg("size"), py::arg("rendezvous"), py::arg("token_file"), py::arg("seconds"), py::arg("name"), py::arg("engine"),
      py::arg("stall_seconds"));
  m.def("empty", [](const Ptr<c10d::Backend> &backend, std::vector<int64_t> sizes, py::object dtype) {
    TORCH_CHECK_TYPE(THPDtype_Check(dtype.ptr()), "torch_trireme.empty: dtype: a torch.dtype is needed (found ", Py_TYPE(dtype.ptr())->tp_name, ")");
    auto type = reinterpret_cast<THPDtype *>(dtype.ptr())->scalar_type;
    py::gil_scoped_release without_gil;
    return of(backend).empty(sizes, type);
  });
  m.def("share_memory", [](const Ptr<c10d::Backend> &backend, size_t least, bool all, bool asked) { of(backend).share_memory(least, all, asked); });
  m.def("private_memory", &pause_shared_allocator);
  m.def("shutdown_all", []() {
    py::gil_scoped_release without_gil;
    return shutdown_all();
  });
  m.def("engine", [](const Ptr<c10d::Backend> &backend) { return std::string(of(backend).engine()); });
}
