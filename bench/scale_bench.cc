// Measures the cost of one more call when a host already holds many objects: 1 to 20,000 queue
// pairs, 1 to 50,000 ids, and connections. Also measures the memory per object, in the host and in
// this process.
//
// Run it on an emulated host by `bazel run -c opt //bench:scale`. Every time is the lowest decile.
// The result is its ratio to the same figure on an empty host.
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

constexpr int kSamples = 151;
constexpr int kQpsPerCq = 256;
constexpr double kMostTimes = 2.0;  // of the first call's time
constexpr double kMostHostBytesAQp = 16 * 1024;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "scale_bench: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
template <class T>
T* Need(T* made, const char* what) {
  if (made == nullptr) Die(what);
  return made;
}
void NeedZero(int result, const char* what) {
  if (result > 0) errno = result;
  if (result != 0) Die(what);
}

// ---- memory

pid_t HostPid() {
  const char* rdmaemu = std::getenv("RDMA_TEST_RDMAEMU");
  const char* name = std::getenv("RDMAEMU_HOST");
  if (rdmaemu == nullptr || name == nullptr) Die("run by bench/scale.py");
  FILE* pipe = Need(popen((std::string(rdmaemu) + " hosts --json").c_str(), "r"), "popen");
  std::string text;
  for (char buffer[4096]; size_t got = std::fread(buffer, 1, sizeof buffer, pipe);) {
    text.append(buffer, got);
  }
  pclose(pipe);
  const auto parsed = nlohmann::json::parse(text);
  for (const auto& host : parsed.is_array() ? parsed : parsed.at("hosts")) {
    if (host.at("name") == name) return host.at("pid");
  }
  Die("no such host");
}

// Returns private memory only, because the rings are shared memory.
int64_t PrivateBytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::atoll(line.c_str() + 8) * 1024;
  }
  return 0;
}
int64_t Entries(pid_t pid, const char* what) {
  int64_t lines = 0;
  if (std::strcmp(what, "maps") == 0) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) lines++;
    return lines;
  }
  const std::string command = "ls /proc/" + std::to_string(pid) + "/fd | wc -l";
  FILE* pipe = Need(popen(command.c_str(), "r"), "popen");
  if (std::fscanf(pipe, "%ld", &lines) != 1) lines = -1;
  pclose(pipe);
  return lines;
}

// ---- time

using Clock = std::chrono::steady_clock;
class Timings {
 public:
  template <class F>
  void Time(const char* what, F&& call) {
    const auto begin = Clock::now();
    call();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    samples_[what].push_back(took.count());
  }
  std::map<std::string, double> LowestDeciles() {
    std::map<std::string, double> deciles;
    for (auto& [what, times] : samples_) {
      // The lowest decile is the cost without other load on the core. A busy machine changes the
      // median.
      const size_t tenth = times.size() / 10;
      std::ranges::nth_element(times, times.begin() + static_cast<long>(tenth));
      deciles[what] = times[tenth];
    }
    return deciles;
  }

 private:
  std::map<std::string, std::vector<double>> samples_;
};

class Table {
 public:
  explicit Table(std::string title) : title_(std::move(title)) {}
  void Add(int64_t count, const std::map<std::string, double>& times) {
    rows_.emplace_back(count, times);
  }
  // Returns false if a call at the highest count takes more than kMostTimes its time in the first
  // row.
  bool Print() const {
    std::printf("\n%s: us, lowest decile\n%10s", title_.c_str(), "count");
    for (const auto& [what, time] : rows_.front().second) std::printf(" %14s", what.c_str());
    for (const auto& [count, times] : rows_) {
      std::printf("\n%10ld", static_cast<long>(count));
      for (const auto& [what, time] : times) std::printf(" %14.1f", time);
    }
    std::printf("\n%10s", "ratio");
    bool good = true;
    for (const auto& [what, first] : rows_.front().second) {
      const double ratio = rows_.back().second.at(what) / first;
      good &= ratio <= kMostTimes;
      std::printf(" %13.2f%c", ratio, ratio <= kMostTimes ? ' ' : '!');
    }
    std::printf("\n");
    std::fflush(stdout);
    return good;
  }

 private:
  std::string title_;
  std::vector<std::pair<int64_t, std::map<std::string, double>>> rows_;
};

// ---- queue pairs

class Device {
 public:
  Device() {
    int count = 0;
    ibv_device** list = Need(ibv_get_device_list(&count), "ibv_get_device_list");
    if (count == 0) Die("no RDMA device");
    context = Need(ibv_open_device(list[0]), "ibv_open_device");
    ibv_free_device_list(list);
    pd = Need(ibv_alloc_pd(context), "ibv_alloc_pd");
    NeedZero(ibv_query_gid(context, 1, 1, &gid), "ibv_query_gid");
    mr = Need(ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
  }
  ibv_qp* CreateQp(ibv_cq* cq) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    return Need(ibv_create_qp(pd, &init), "ibv_create_qp");
  }
  void Connect(ibv_qp* qp, uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    NeedZero(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 64;
    NeedZero(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 6;
    attr.max_rd_atomic = 1;
    NeedZero(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
             "RTS");
  }

  ibv_context* context;
  ibv_pd* pd;
  ibv_gid gid;
  ibv_mr* mr;
  char buffer[4096];
};

struct Pair {
  ibv_qp *a, *b;
};

void PollOne(ibv_cq* cq, const char* what) {
  ibv_wc wc{};
  int got;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  if (got < 0 || wc.status != IBV_WC_SUCCESS) Die(what);
}

void SendOnce(Device& device, const Pair& pair) {
  ibv_sge sge{reinterpret_cast<uint64_t>(device.buffer), 8, device.mr->lkey};
  ibv_recv_wr receive{}, *bad_receive;
  receive.sg_list = &sge;
  receive.num_sge = 1;
  NeedZero(ibv_post_recv(pair.b, &receive, &bad_receive), "ibv_post_recv");
  ibv_send_wr send{}, *bad_send;
  send.sg_list = &sge;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  NeedZero(ibv_post_send(pair.a, &send, &bad_send), "ibv_post_send");
  PollOne(pair.a->send_cq, "send");
  PollOne(pair.b->recv_cq, "receive");
}

void TimeQps(Device& device, Timings& timings, const std::vector<Pair>& population) {
  for (int i = 0; i < kSamples; i++) {
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    Pair pair{};
    timings.Time("create_cq", [&] {
      cq = Need(ibv_create_cq(device.context, 16, nullptr, nullptr, 0), "ibv_create_cq");
    });
    timings.Time("reg_mr",
                 [&] { mr = Need(ibv_reg_mr(device.pd, device.buffer, 64, 0), "ibv_reg_mr"); });
    timings.Time("dereg_mr", [&] { NeedZero(ibv_dereg_mr(mr), "ibv_dereg_mr"); });
    timings.Time("create_qp", [&] { pair.a = device.CreateQp(cq); });
    pair.b = device.CreateQp(cq);
    device.Connect(pair.a, pair.b->qp_num);
    timings.Time("connect_qp", [&] { device.Connect(pair.b, pair.a->qp_num); });
    SendOnce(device, pair);
    timings.Time("send_new", [&] { SendOnce(device, pair); });
    if (!population.empty()) {
      const Pair& old = population[static_cast<size_t>(i) * 7919 % population.size()];
      timings.Time("send_any", [&] { SendOnce(device, old); });
    }
    timings.Time("destroy_qp", [&] { NeedZero(ibv_destroy_qp(pair.a), "ibv_destroy_qp"); });
    NeedZero(ibv_destroy_qp(pair.b), "ibv_destroy_qp");
    timings.Time("destroy_cq", [&] { NeedZero(ibv_destroy_cq(cq), "ibv_destroy_cq"); });
  }
}

bool Qps(pid_t host, int most) {
  Device device;
  std::vector<Pair> pairs;
  std::vector<ibv_cq*> cqs;
  Table table("queue pairs, connected");
  int64_t host_before = 0, here_before = 0;
  for (const int target : {2, 200, 2000, 10000, 20000}) {
    if (target > most) break;
    while (static_cast<int>(pairs.size()) * 2 < target) {
      if (pairs.size() * 2 % kQpsPerCq == 0) {
        cqs.push_back(Need(ibv_create_cq(device.context, 4 * kQpsPerCq, nullptr, nullptr, 0),
                           "ibv_create_cq"));
      }
      Pair pair{device.CreateQp(cqs.back()), device.CreateQp(cqs.back())};
      device.Connect(pair.a, pair.b->qp_num);
      device.Connect(pair.b, pair.a->qp_num);
      SendOnce(device, pair);  // a QP that has sent holds all the memory that it will ever need
      pairs.push_back(pair);
    }
    Timings timings;
    TimeQps(device, timings, pairs);
    table.Add(target, timings.LowestDeciles());
    if (target == 2) {
      host_before = PrivateBytes(host);
      here_before = PrivateBytes(getpid());
    }
  }
  const auto count = static_cast<double>(pairs.size()) * 2;
  const double host_bytes = static_cast<double>(PrivateBytes(host) - host_before) / count;
  const double here_bytes = static_cast<double>(PrivateBytes(getpid()) - here_before) / count;
  bool good = table.Print();
  std::printf(
      "a queue pair beside its rings: %.0f bytes in the host%s, %.0f here; the host has %ld"
      " descriptors and %ld mappings, we have %ld mappings\n",
      host_bytes, host_bytes < kMostHostBytesAQp ? "" : " (!)", here_bytes, Entries(host, "fd"),
      Entries(host, "maps"), Entries(getpid(), "maps"));
  good &= host_bytes < kMostHostBytesAQp;
  const auto begin = Clock::now();
  for (const Pair& pair : pairs) {
    NeedZero(ibv_destroy_qp(pair.a), "ibv_destroy_qp");
    NeedZero(ibv_destroy_qp(pair.b), "ibv_destroy_qp");
  }
  const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
  std::printf("destroying all of them: %.1f us each; then the host has %.1f MB of its own\n",
              took.count() / count, static_cast<double>(PrivateBytes(host)) / 1e6);
  for (ibv_cq* cq : cqs) NeedZero(ibv_destroy_cq(cq), "ibv_destroy_cq");
  NeedZero(ibv_dereg_mr(device.mr), "ibv_dereg_mr");
  NeedZero(ibv_dealloc_pd(device.pd), "ibv_dealloc_pd");
  NeedZero(ibv_close_device(device.context), "ibv_close_device");
  return good;
}

// ---- ids

sockaddr_in Address(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const char* text = std::getenv("RDMA_TEST_LOCAL");
  if (text == nullptr || inet_pton(AF_INET, text, &address.sin_addr) != 1) Die("RDMA_TEST_LOCAL");
  return address;
}

void TakeEvent(rdma_event_channel* channel, rdma_cm_event_type type,
               const std::function<void(rdma_cm_event&)>& use = {}) {
  rdma_cm_event* event = nullptr;
  NeedZero(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (event->event != type) {
    std::fprintf(stderr, "scale_bench: %s in place of %s\n", rdma_event_str(event->event),
                 rdma_event_str(type));
    std::exit(1);
  }
  if (use) use(*event);
  NeedZero(rdma_ack_cm_event(event), "rdma_ack_cm_event");
}

rdma_cm_id* CreateId(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  NeedZero(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  return id;
}
void ResolveAddress(rdma_cm_id* id, uint16_t port) {
  sockaddr_in to = Address(port);
  NeedZero(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000),
           "rdma_resolve_addr");
  TakeEvent(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}
void ResolveRoute(rdma_cm_id* id) {
  NeedZero(rdma_resolve_route(id, 2000), "rdma_resolve_route");
  TakeEvent(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

// A connection by rdma_cm with both ends in this process.
struct Connection {
  rdma_cm_id *active = nullptr, *passive = nullptr;
};

class Connector {
 public:
  Connector() {
    channel_ = Need(rdma_create_event_channel(), "rdma_create_event_channel");
    listening_ = Need(rdma_create_event_channel(), "rdma_create_event_channel");
    NeedZero(rdma_create_id(listening_, &listener_, nullptr, RDMA_PS_TCP), "rdma_create_id");
    sockaddr_in any = Address(0);
    NeedZero(rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&any)), "rdma_bind_addr");
    NeedZero(rdma_listen(listener_, 128), "rdma_listen");
    port_ = ntohs(rdma_get_src_port(listener_));
    cq_ = Need(ibv_create_cq(listener_->verbs, 1024, nullptr, nullptr, 0), "ibv_create_cq");
  }
  Connection Connect() {
    Connection made;
    made.active = CreateId(channel_);
    ResolveAddress(made.active, port_);
    ResolveRoute(made.active);
    GiveQp(made.active);
    rdma_conn_param parameters{};
    parameters.retry_count = parameters.rnr_retry_count = 6;
    NeedZero(rdma_connect(made.active, &parameters), "rdma_connect");
    TakeEvent(listening_, RDMA_CM_EVENT_CONNECT_REQUEST,
              [&](rdma_cm_event& event) { made.passive = event.id; });
    GiveQp(made.passive);
    NeedZero(rdma_accept(made.passive, &parameters), "rdma_accept");
    TakeEvent(channel_, RDMA_CM_EVENT_ESTABLISHED);
    TakeEvent(listening_, RDMA_CM_EVENT_ESTABLISHED);
    return made;
  }
  void Disconnect(const Connection& connection) {
    NeedZero(rdma_disconnect(connection.active), "rdma_disconnect");
    TakeEvent(listening_, RDMA_CM_EVENT_DISCONNECTED);
    NeedZero(rdma_disconnect(connection.passive), "rdma_disconnect");
    TakeEvent(channel_, RDMA_CM_EVENT_DISCONNECTED);
    for (rdma_cm_id* id : {connection.active, connection.passive}) {
      rdma_destroy_qp(id);
      NeedZero(rdma_destroy_id(id), "rdma_destroy_id");
    }
  }
  rdma_event_channel* channel() { return channel_; }

 private:
  void GiveQp(rdma_cm_id* id) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    NeedZero(rdma_create_qp(id, nullptr, &init), "rdma_create_qp");
  }
  rdma_event_channel *channel_, *listening_;
  rdma_cm_id* listener_ = nullptr;
  uint16_t port_ = 0;
  ibv_cq* cq_ = nullptr;
};

bool Ids(pid_t host, int most) {
  Connector connector;
  rdma_event_channel* channel = connector.channel();
  std::vector<rdma_cm_id*> ids;
  Table table("ids, resolved");
  int64_t host_before = 0, here_before = 0;
  for (const int target : {1, 1000, 10000, 50000}) {
    if (target > most) break;
    while (static_cast<int>(ids.size()) < target) {
      ids.push_back(CreateId(channel));
      // Ids with different destinations share the ephemeral ports, of which there are 28,232.
      ResolveAddress(ids.back(), static_cast<uint16_t>(1 + ids.size() % 60000));
      ResolveRoute(ids.back());
    }
    Timings timings;
    for (int i = 0; i < kSamples; i++) {
      rdma_cm_id* id = nullptr;
      timings.Time("create_id", [&] { id = CreateId(channel); });
      timings.Time("resolve_addr", [&] { ResolveAddress(id, 4791); });
      timings.Time("resolve_route", [&] { ResolveRoute(id); });
      timings.Time("destroy_id", [&] { NeedZero(rdma_destroy_id(id), "rdma_destroy_id"); });
      rdma_event_channel* own = nullptr;
      timings.Time("channel",
                   [&] { own = Need(rdma_create_event_channel(), "rdma_create_event_channel"); });
      rdma_destroy_event_channel(own);
      Connection connection;
      timings.Time("connect", [&] { connection = connector.Connect(); });
      timings.Time("disconnect", [&] { connector.Disconnect(connection); });
    }
    table.Add(target, timings.LowestDeciles());
    if (target == 1) {
      host_before = PrivateBytes(host);
      here_before = PrivateBytes(getpid());
    }
  }
  const bool good = table.Print();
  const auto count = static_cast<double>(ids.size());
  std::printf("an id: %.0f bytes in the host, %.0f here\n",
              static_cast<double>(PrivateBytes(host) - host_before) / count,
              static_cast<double>(PrivateBytes(getpid()) - here_before) / count);
  for (rdma_cm_id* id : ids) NeedZero(rdma_destroy_id(id), "rdma_destroy_id");
  return good;
}

bool Connections(pid_t host, int most) {
  Connector connector;
  std::vector<Connection> connections;
  Table table("connections by rdma_cm, each with two ids and two queue pairs");
  int64_t host_before = 0;
  for (const int target : {1, 100, 1000, 10000}) {
    if (target > most) break;
    const auto begin = Clock::now();
    const int before = static_cast<int>(connections.size());
    while (static_cast<int>(connections.size()) < target) {
      connections.push_back(connector.Connect());
    }
    const std::chrono::duration<double> took = Clock::now() - begin;
    std::printf("%d to %d connections: %.0f a second\n", before, target,
                (target - before) / took.count());
    Timings timings;
    for (int i = 0; i < kSamples; i++) {
      Connection connection;
      timings.Time("connect", [&] { connection = connector.Connect(); });
      timings.Time("disconnect", [&] { connector.Disconnect(connection); });
    }
    table.Add(target, timings.LowestDeciles());
    if (target == 1) host_before = PrivateBytes(host);
  }
  const bool good = table.Print();
  std::printf("a connection: %.0f bytes in the host beside its rings\n",
              static_cast<double>(PrivateBytes(host) - host_before) /
                  static_cast<double>(connections.size()));
  for (const Connection& connection : connections) connector.Disconnect(connection);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  const int most = argc > 2 ? std::atoi(argv[2]) : 0;
  ibv_free_device_list(ibv_get_device_list(nullptr));  // starts the host
  bool good = false;
  if (part == "qps") {
    good = Qps(HostPid(), most);
  } else if (part == "ids") {
    good = Ids(HostPid(), most);
  } else if (part == "connections") {
    good = Connections(HostPid(), most);
  } else {
    std::fprintf(stderr, "usage: scale_bench qps|ids|connections MOST\n");
    return 2;
  }
  std::printf("%s\n\n", good ? "within the limits" : "(!) marks what is beyond its limit");
  return good ? 0 : 1;
}
