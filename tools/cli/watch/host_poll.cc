#include "tools/cli/watch/host_poll.h"

#include <algorithm>
#include <cerrno>
#include <set>

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns the number of processes with clients. A status lists a limited number of clients. Each
// other client counts as a process.
uint64_t ProcessesOf(const Json& clients, uint64_t clients_total) {
  std::set<uint64_t> pids;
  for (const Json& client : clients) {
    // A client without a group only makes queries, as the watching command does.
    if (client.value("group", uint64_t{0}) != 0) pids.insert(client.value("pid", uint64_t{0}));
  }
  return pids.size() + clients_total - std::min(clients_total, uint64_t{clients.size()});
}

uint64_t SumOf(const Json& counters) {
  uint64_t sum = 0;
  for (const Json& each : counters) sum += each.get<uint64_t>();
  return sum;
}

std::string DevicesOf(const Json& status) {
  std::string text;
  for (const Json& device : status.value("devices", Json::array())) {
    text += (text.empty() ? "" : "; ") + device.value("name", "?");
    if (!device.value("present", true)) {
      text += " (removed)";
    } else if (device.value("port", "active") != "active") {
      text += " (port down)";
    }
    const Json on_wire = device.value("on_wire", Json::array());
    for (const Json& address :
         on_wire.empty() ? device.value("addresses", Json::array()) : on_wire) {
      text += " " + address.get<std::string>();
    }
  }
  return text;
}

Traffic TrafficOf(const Json& counters) {
  const auto count = [&](const char* name) { return counters.value(name, uint64_t{0}); };
  return {.packets_sent = count("datagrams_sent"),
          .packets_received = count("datagrams_received"),
          .bytes_sent = count("datagram_bytes_sent"),
          .bytes_received = count("datagram_bytes_received"),
          .local_packets = count("local_packets"),
          .message_bytes = count("bytes_sent")};
}

// Returns nullopt if the text is not the status of a host.
std::optional<HostReply> ReplyOf(const std::string& status) try {
  HostReply reply{.status = ParseStatus(status)};
  if (!reply.status.is_object()) return std::nullopt;
  const Json clients = Json::parse(status).value("clients", Json::array());
  reply.processes =
      ProcessesOf(clients, reply.status.value("clients_total", uint64_t{clients.size()}));
  reply.qps = reply.status.value("qps", uint64_t{0});
  reply.ids = reply.status.value("ids", uint64_t{0});
  reply.connections = reply.status.value("connections", uint64_t{0});
  reply.devices = DevicesOf(reply.status);
  const Json counters = reply.status.value("counters", Json::object());
  reply.traffic = TrafficOf(counters);
  reply.dropped = SumOf(counters.value("dropped", Json::object()));
  return reply;
} catch (const Json::exception&) {
  return std::nullopt;
}

// Returns 0 for a host without rules, which may not support the call.
uint64_t FiringsOf(const Result<std::string>& rules) try {
  uint64_t fired = 0;
  if (!rules) return 0;
  for (const Json& rule : Json::parse(*rules)) fired += rule.value("fired", uint64_t{0});
  return fired;
} catch (const Json::exception&) {
  return 0;
}

}  // namespace

Json ParseStatus(const std::string& status) {
  Json json = Json::parse(status, nullptr, false);
  if (!json.is_object()) return {};
  Json clients = Json::array();
  for (const Json& each : json.value("clients", Json::array())) {
    if (each.value("group", uint64_t{0}) != 0) clients.push_back(each);
  }
  json["clients"] = clients;
  return json;
}

void HostPoll::Ask(WatchClock::time_point now) {
  may_retry_ = true;
  if (!client_) Connect(now);
}

void HostPoll::Connect(WatchClock::time_point now) {
  asked_.reset();
  auto client = runtime::HostClient::ConnectWithoutBlocking(path_);
  if (!client && client.error().code != EAGAIN) return End();
  if (!unanswered_since_) unanswered_since_ = now;
  if (!client) return;  // the host does not accept connections
  if (client->host_pid() != pid_) {
    last_.reset();
    previous_.reset();
    unanswered_since_ = now;
  }
  pid_ = client->host_pid();
  has_ended_ = false;
  if (client->Send(CallOp::kHostStatus)) client_ = std::move(*client);
}

void HostPoll::End() {
  has_ended_ = pid_ != 0;
  client_.reset();
  unanswered_since_.reset();
}

// The host has closed the connection: it is ending, or it has too many connections.
void HostPoll::Retry(WatchClock::time_point now) {
  client_.reset();
  if (may_retry_) {
    may_retry_ = false;
    Connect(now);
  }
}

void HostPoll::Receive(WatchClock::time_point now) {
  const Result<std::string> answer = client_->Receive();
  if (!asked_) {
    asked_ = answer ? ReplyOf(*answer) : std::nullopt;
    if (!asked_ || !client_->Send(CallOp::kFaultList)) Retry(now);
    return;
  }
  if (!answer && (answer.error().code == ECONNRESET || answer.error().code == EPROTO)) {
    return Retry(now);
  }
  asked_->rules_fired = FiringsOf(answer);
  asked_->at = now;
  previous_ = std::move(last_);
  last_ = std::move(asked_);
  asked_.reset();
  client_.reset();
  unanswered_since_.reset();
}

void HostPolls::Ask(WatchClock::time_point now) {
  for (const std::string& name : registry_.Names()) {
    if (!only_.empty() && name != only_) continue;
    hosts_.try_emplace(name, Entry{HostPoll(registry_, name)});
  }
  for (auto& [name, entry] : hosts_) {
    entry.poll.Ask(now);
    entry.frames_ended = entry.poll.has_ended() ? entry.frames_ended + 1 : 0;
  }
  std::erase_if(hosts_, [](const auto& each) {
    const Entry& entry = each.second;
    const bool has_run = entry.poll.pid() != 0 || entry.poll.unanswered_since();
    return entry.frames_ended > kEndedFrames || !has_run;
  });
}

bool HostPolls::IsComplete(WatchClock::time_point now) const {
  return std::ranges::none_of(hosts_,
                              [&](const auto& each) { return each.second.poll.IsAwaited(now); });
}

std::optional<WatchClock::time_point> HostPolls::NextLimit(WatchClock::time_point now) const {
  std::optional<WatchClock::time_point> next;
  for (const auto& [name, entry] : hosts_) {
    if (!entry.poll.IsAwaited(now)) continue;
    const auto limit = *entry.poll.unanswered_since() + HostPoll::kAnswerLimit;
    next = std::min(next.value_or(limit), limit);
  }
  return next;
}

std::vector<HostPoll*> HostPolls::InProgress() {
  std::vector<HostPoll*> polls;
  for (auto& [name, entry] : hosts_) {
    if (entry.poll.fd() >= 0) polls.push_back(&entry.poll);
  }
  return polls;
}

std::vector<const HostPoll*> HostPolls::Listed(WatchClock::time_point now) const {
  std::vector<const HostPoll*> listed;
  for (const auto& [name, entry] : hosts_) {
    const HostPoll& poll = entry.poll;
    if (poll.last() || poll.IsSilent(now) || poll.has_ended()) listed.push_back(&poll);
  }
  return listed;
}

}  // namespace rdmaemu::cli
