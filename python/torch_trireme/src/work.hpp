// SPDX-License-Identifier: Apache-2.0
// work.hpp: one started operation of a process group, and the queue that runs the collectives of a group in order.
//
// A collective of a caller that waits for it (asyncOp is false) runs in the caller's thread when nothing else runs or waits in
// the queue: that saves two changes of thread. All others run in the queue's thread, in the order in which they were started.
#pragma once

#include <trireme/dist.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace trireme {

using Tensors = std::vector<at::Tensor>;
using std::chrono::milliseconds;

// A started operation. It ends once: with its results, or with the exception that wait() throws.
class Work : public c10d::Work {
 public:
  // outputs: the tensors that the operation writes; they live as long as the work. timeout: of wait() without one.
  Work(int rank, c10d::OpType type, const char *title, const Tensors &inputs, Tensors outputs, milliseconds timeout, uint64_t sequence);

  bool wait(milliseconds timeout = kNoTimeout) override;
  void abort() override;
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return sequence_; }
  milliseconds getTimeout() const override { return timeout_; }
  int sourceRank() const override { return source_; }

  // Ends the work: with `error`, or well where it is NULL.
  void end(std::exception_ptr error = nullptr);
  void set_source(int rank) { source_ = rank; }
  const char *title() const { return title_; }

 private:
  const char *title_;
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  milliseconds timeout_;
  uint64_t sequence_;
  int source_ = -1;
};
using WorkPtr = c10::intrusive_ptr<Work>;

// Runs the collectives of one communicator, one at a time, in order.
class Queue {
 public:
  ~Queue() { stop(); }
  // Runs `run` and ends `work`: at once in this thread where the caller waits and the queue is idle, else in the queue's thread.
  void add(const WorkPtr &work, std::function<void()> run, bool caller_waits);
  // Whether a caller's thread runs a task.
  bool is_in_caller();
  // Runs what is queued, ends the thread and waits for a task in a caller's thread. Later calls of add run in the caller's thread.
  void stop();

 private:
  struct Task {
    WorkPtr work;
    std::function<void()> run;
  };
  static void execute(Task &task);
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool running_ = false, in_queue_ = false, stopping_ = false;
  std::thread thread_;
};

// Throws what `status` and `error` say, with the operation's name, as c10d's errors: a distributed backend error.
void check(trm_status status, const trm_error &error, const char *operation);

}  // namespace trireme
