// SPDX-License-Identifier: Apache-2.0
// messages.cpp: tagged point-to-point messages (messages.hpp).
#include "messages.hpp"

#include <cstring>

namespace trireme {

Messages::Messages(trm_comm *comm, int rank, int size) : comm_(comm), rank_(rank), size_(size), incoming_(size) {}

Messages::~Messages() {
  bool waits = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  for (Incoming &in : incoming_) {
    waits = waits || in.state != Incoming::kIdle;
  }
  if (waits) { /* a receive from any rank left a header waiting: nobody sends it any more */
    trm_comm_abort(comm_, nullptr);
    for (Incoming &in : incoming_) {
      if (in.request != nullptr) {
        (void)trm_request_wait(in.request, -1, nullptr);
      }
    }
  }
  trm_comm_destroy(comm_);
}

void Messages::post(std::list<PostedPtr> &list, PostedPtr posted) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (failed_) {
    std::exception_ptr error = failed_;
    lock.unlock();
    posted->work->end(error);
    return;
  }
  list.push_back(std::move(posted));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_one();
}

void Messages::send(const WorkPtr &work, at::Tensor tensor, int peer, int64_t tag, milliseconds timeout) {
  auto posted = std::make_shared<Posted>();
  posted->work = work;
  posted->flat = tensor.contiguous();
  posted->tensor = std::move(tensor);
  posted->peer = peer;
  posted->tag = tag;
  posted->deadline = Clock::now() + timeout;
  posted->header = {tag, static_cast<int64_t>(posted->flat.nbytes())};
  post(sends_, std::move(posted));
}

void Messages::receive(const WorkPtr &work, at::Tensor tensor, int peer, int64_t tag, milliseconds timeout) {
  auto posted = std::make_shared<Posted>();
  posted->work = work;
  posted->flat = tensor.is_contiguous() ? tensor : at::empty_like(tensor, at::MemoryFormat::Contiguous);
  posted->tensor = std::move(tensor);
  posted->peer = peer;
  posted->tag = tag;
  posted->deadline = Clock::now() + timeout;
  post(receives_, std::move(posted));
}

void Messages::abort(const std::string &cause) {
  trm_error error{};
  error.status = TRM_CANCELLED;
  error.rank = rank_;
  snprintf(error.message, sizeof error.message, "%s", cause.c_str());
  trm_comm_abort(comm_, &error);
  std::lock_guard<std::mutex> lock(mutex_);
  changed_.notify_one();
}

void Messages::start_message(trm_message message, trm_request **request, const char *operation) {
  trm_error error;
  check(trm_comm_start_exchange(comm_, &message, 1, request, &error), error, operation);
}

// Returns true if the request is done, and frees it. Throws where it failed.
bool Messages::done(trm_request *&request, const char *operation) {
  if (!trm_request_test(request)) {
    return false;
  }
  trm_error error;
  trm_request *ended = request;
  request = nullptr;
  check(trm_request_wait(ended, -1, &error), error, operation);
  return true;
}

// The rest of a receive: sizes must agree; a tensor that is not contiguous gets its values.
void Messages::deliver(Posted &receive, const void *bytes, int64_t size, int peer) {
  if (size != static_cast<int64_t>(receive.flat.nbytes())) {
    receive.work->end(std::make_exception_ptr(std::runtime_error(c10::str("trireme: recv: rank ", peer, " sent ", size, " bytes with tag ", receive.tag,
                                                                          ", and rank ", rank_, " expected ", receive.flat.nbytes()))));
    return;
  }
  if (bytes != nullptr && size > 0) {
    std::memcpy(receive.flat.data_ptr(), bytes, size);
  }
  if (!receive.flat.is_same(receive.tensor)) {
    receive.tensor.copy_(receive.flat);
  }
  receive.work->set_source(peer);
  receive.work->end();
}

// A message that came before its receive was posted.
bool Messages::take_early(Posted &receive) {
  for (int peer = 0; peer < size_; peer++) {
    if (receive.peer != kAnySource && receive.peer != peer) {
      continue;
    }
    auto &earlier = incoming_[peer].earlier;
    for (auto it = earlier.begin(); it != earlier.end(); ++it) {
      if (it->tag == receive.tag) {
        deliver(receive, it->bytes.data(), static_cast<int64_t>(it->bytes.size()), peer);
        earlier.erase(it);
        return true;
      }
    }
  }
  return false;
}

bool Messages::wanted(int peer) const {
  for (const PostedPtr &r : receives_) {
    if (peer != rank_ && (r->peer == peer || r->peer == kAnySource)) {
      return true;
    }
  }
  return false;
}

Messages::PostedPtr Messages::match(int peer, int64_t tag) {
  for (auto it = receives_.begin(); it != receives_.end(); ++it) {
    if (((*it)->peer == peer || (*it)->peer == kAnySource) && (*it)->tag == tag) {
      PostedPtr found = *it;
      receives_.erase(it);
      return found;
    }
  }
  return nullptr;
}

bool Messages::start_sends() {
  bool moved = false;
  for (auto it = sends_.begin(); it != sends_.end();) {
    Posted &p = **it;
    if (p.request == nullptr) {
      trm_message messages[2] = {{false, p.peer, &p.header, sizeof p.header, TRM_UINT8, "header"},
                                 {false, p.peer, p.flat.data_ptr(), p.header.bytes, TRM_UINT8, "send"}};
      trm_error error;
      check(trm_comm_start_exchange(comm_, messages, p.header.bytes > 0 ? 2 : 1, &p.request, &error), error, "send");
      moved = true;
    }
    if (done(p.request, "send")) {
      p.work->end();
      it = sends_.erase(it);
      moved = true;
    } else {
      ++it;
    }
  }
  return moved;
}

bool Messages::advance(int peer) {
  Incoming &in = incoming_[peer];
  if (in.state == Incoming::kIdle) {
    if (!wanted(peer)) {
      return false;
    }
    start_message({true, peer, &in.header, sizeof in.header, TRM_UINT8, "header"}, &in.request, "recv");
    in.state = Incoming::kHeader;
    return true;
  }
  if (!done(in.request, "recv")) {
    return false;
  }
  if (in.state == Incoming::kHeader) {
    TORCH_CHECK(in.header.bytes >= 0, "trireme: recv: rank ", peer, " announced ", in.header.bytes, " bytes");
    in.target = match(peer, in.header.tag);
    // A receive of another size gets its error when the bytes are here: they must be read in any case.
    bool direct = in.target && static_cast<int64_t>(in.target->flat.nbytes()) == in.header.bytes;
    in.early = {in.header.tag, std::vector<char>(direct ? 0 : in.header.bytes)};
    in.state = Incoming::kBytes;
    if (in.header.bytes > 0) {
      start_message({true, peer, direct ? in.target->flat.data_ptr() : in.early.bytes.data(), in.header.bytes, TRM_UINT8, "recv"}, &in.request, "recv");
      return true;
    }
  }
  in.state = Incoming::kIdle;
  if (in.target) {
    deliver(*in.target, nullptr, in.header.bytes, peer);
    in.target = nullptr;
  } else {
    in.earlier.push_back(std::move(in.early));
  }
  return true;
}

// Fails what has waited too long. The bytes of a send stay in use until the communicator ends.
void Messages::drop_late() {
  Clock::time_point now = Clock::now();
  auto late = [&](const PostedPtr &p) { return now > p->deadline; };
  auto error = [&](const PostedPtr &p, const char *operation, const char *direction) {
    std::string peer = p->peer == kAnySource ? "any rank" : c10::str("rank ", p->peer);
    return std::make_exception_ptr(std::runtime_error(c10::str("trireme: ", operation, ": Timed out waiting for this message ", direction, " ", peer, " (tag ", p->tag, ")")));
  };
  for (auto it = receives_.begin(); it != receives_.end();) {
    if (late(*it)) {
      (*it)->work->end(error(*it, "recv", "from"));
      it = receives_.erase(it);
    } else {
      ++it;
    }
  }
  for (const PostedPtr &p : sends_) {
    if (late(p) && !p->work->isCompleted()) {
      trm_error cause{};
      cause.status = TRM_TIMEOUT;
      cause.rank = rank_;
      snprintf(cause.message, sizeof cause.message, "rank %d waited too long for rank %d to receive", rank_, p->peer);
      trm_comm_abort(comm_, &cause);
      std::rethrow_exception(error(p, "send", "to"));
    }
  }
}

bool Messages::step() {
  bool moved = false;
  for (auto it = receives_.begin(); it != receives_.end();) {
    if (take_early(**it)) {
      it = receives_.erase(it);
      moved = true;
    } else {
      ++it;
    }
  }
  moved = start_sends() || moved;
  for (int peer = 0; peer < size_; peer++) {
    moved = advance(peer) || moved;
  }
  drop_late();
  return moved;
}

void Messages::fail_all(std::exception_ptr error) {
  failed_ = error;
  for (auto *list : {&sends_, &receives_}) {
    for (const PostedPtr &p : *list) {
      if (!p->work->isCompleted()) {
        p->work->end(error);
      }
      if (p->request != nullptr) {
        (void)trm_request_wait(p->request, -1, nullptr);
      }
    }
    list->clear();
  }
  for (Incoming &in : incoming_) {
    if (in.request != nullptr) {
      (void)trm_request_wait(in.request, -1, nullptr);
      in.request = nullptr;
    }
    in.state = Incoming::kIdle;
    if (in.target) {
      in.target->work->end(error);
      in.target = nullptr;
    }
  }
}

// Moves messages while some wait. Between two looks it yields for 100 us, then it sleeps for up to 200 us at a time.
void Messages::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  int idle = 0;
  for (;;) {
    bool waits = !sends_.empty() || !receives_.empty();
    for (const Incoming &in : incoming_) {
      waits = waits || in.state == Incoming::kBytes;
    }
    if (!waits) {
      if (stopping_) {
        return;
      }
      changed_.wait(lock, [this] { return stopping_ || !sends_.empty() || !receives_.empty(); });
      idle = 0;
      continue;
    }
    bool moved = false;
    try {
      moved = step();
    } catch (...) {
      fail_all(std::current_exception());
    }
    idle = moved ? 0 : idle + 1;
    if (idle > 200) {
      changed_.wait_for(lock, std::chrono::microseconds(idle > 2000 ? 200 : 20));
    } else if (!moved) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

}  // namespace trireme
