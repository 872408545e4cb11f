// SPDX-License-Identifier: Apache-2.0
// messages.hpp: send, receive and receive from any rank, with tags, over a communicator of its own.
//
// A message is a header (tag and bytes) and its bytes. The receiver reads the header of a peer's next message only while some
// receive may take it; then it reads the bytes into the buffer of the first posted receive with that tag, or into memory of its
// own where none is posted yet. One thread makes all calls of the communicator, as its rules demand, and so any pattern of sends
// and receives that pair up completes, in whichever order they were started.
#pragma once

#include "work.hpp"

#include <list>
#include <map>

namespace trireme {

class Messages {
 public:
  static constexpr int kAnySource = -1;
  // comm: taken over; destroyed with this object.
  Messages(trm_comm *comm, int rank, int size);
  ~Messages();

  // tag >= 0 is the caller's; negative tags are the group's own.
  void send(const WorkPtr &work, at::Tensor tensor, int peer, int64_t tag, milliseconds timeout);
  // peer: kAnySource takes the first message of any rank that has the tag.
  void receive(const WorkPtr &work, at::Tensor tensor, int peer, int64_t tag, milliseconds timeout);
  // Fails everything that waits, on all ranks.
  void abort(const std::string &cause);

 private:
  using Clock = std::chrono::steady_clock;
  struct Header {
    int64_t tag, bytes;
  };
  // A send or receive of the caller.
  struct Posted {
    WorkPtr work;
    at::Tensor tensor, flat;  // flat: contiguous, what travels
    int peer;
    int64_t tag;
    Clock::time_point deadline;
    Header header{};              // sends: what travels before the bytes
    trm_request *request = nullptr;  // sends, once started
  };
  // A message that has no receive yet.
  struct Early {
    int64_t tag;
    std::vector<char> bytes;
  };
  // The state of the messages from one peer.
  struct Incoming {
    enum { kIdle, kHeader, kBytes } state = kIdle;
    Header header{};
    trm_request *request = nullptr;
    std::shared_ptr<Posted> target;  // of the bytes; none: into `early`
    Early early;
    std::list<Early> earlier;
  };
  using PostedPtr = std::shared_ptr<Posted>;

  void post(std::list<PostedPtr> &list, PostedPtr posted);
  void loop();
  bool step();  // returns true if something moved
  bool start_sends();
  bool advance(int peer);
  bool take_early(Posted &receive);
  bool wanted(int peer) const;
  PostedPtr match(int peer, int64_t tag);
  void start_message(trm_message message, trm_request **request, const char *operation);
  bool done(trm_request *&request, const char *operation);
  void deliver(Posted &receive, const void *bytes, int64_t size, int peer);
  void drop_late();
  void fail_all(std::exception_ptr error);

  trm_comm *comm_;
  const int rank_, size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<PostedPtr> sends_, receives_;  // posted; sends stay until they are done
  std::vector<Incoming> incoming_;
  std::exception_ptr failed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trireme
