// SPDX-License-Identifier: Apache-2.0
// work.cpp: started operations and the queue of collectives (work.hpp).
#include "work.hpp"

namespace trireme {

void check(trm_status status, const trm_error &error, const char *operation) {
  if (status == TRM_OK) {
    return;
  }
  const char *how = status == TRM_TIMEOUT ? "Timed out waiting: " : "";
  C10_THROW_ERROR(DistBackendError, c10::str("trireme: ", operation, ": ", how, error.message, " (", trm_status_name(status), ")"));
}

Work::Work(int rank, c10d::OpType type, const char *title, const Tensors &inputs, Tensors outputs, milliseconds timeout, uint64_t sequence)
    : c10d::Work(rank, type, title, inputs),
      title_(title),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))),
      timeout_(timeout),
      sequence_(sequence) {}

void Work::end(std::exception_ptr error) {
  // First the future: a thread that wakes from wait() may read it.
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  finish(error);
}

bool Work::wait(milliseconds timeout) {
  // The operation has the same limit, and its error names the missing ranks: this wait lasts a little longer.
  milliseconds limit = timeout == kNoTimeout ? timeout_ + milliseconds(1000) : timeout;
  std::unique_lock<std::mutex> lock(mutex_);
  if (!cv_.wait_for(lock, limit, [this] { return completed_; })) {
    C10_THROW_ERROR(DistBackendError, c10::str("trireme: ", title_, ": Timed out waiting ", limit.count(), "ms for this operation of rank ", rank_));
  }
  if (exception_) {
    std::rethrow_exception(exception_);
  }
  return true;
}

void Work::abort() { TORCH_CHECK(false, "trireme: an operation cannot be aborted alone; abort its process group"); }

void Queue::execute(Task &task) {
  std::exception_ptr error;
  try {
    task.run();
  } catch (...) {
    error = std::current_exception();
  }
  task.work->end(error);
}

void Queue::add(const WorkPtr &work, std::function<void()> run, bool caller_waits) {
  Task task{work, std::move(run)};
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopping_ || (caller_waits && !running_ && tasks_.empty())) {
    running_ = true;
    lock.unlock();
    execute(task);
    lock.lock();
    running_ = false;
    changed_.notify_all();
    return;
  }
  tasks_.push_back(std::move(task));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_one();
}

void Queue::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !running_ && (stopping_ || !tasks_.empty()); });
    if (tasks_.empty()) {
      return;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = in_queue_ = true;
    lock.unlock();
    execute(task);
    task = Task();
    lock.lock();
    running_ = in_queue_ = false;
  }
}

void Queue::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
}

bool Queue::is_in_caller() {
  std::lock_guard<std::mutex> lock(mutex_);
  return running_ && !in_queue_;
}

}  // namespace trireme
