#include "bench/rdma/figure.h"

#include <map>
#include <sstream>

#include "bench/rdma/base.h"
#include "bench/rdma/endpoint.h"

namespace rdma_bench {
namespace {

const std::map<std::string, Figure> kFigures = {
    {"send", {Measure::kBandwidth, IBV_WR_SEND}},
    {"write", {Measure::kBandwidth, IBV_WR_RDMA_WRITE}},
    {"read", {Measure::kBandwidth, IBV_WR_RDMA_READ}},
    {"write_events", {Measure::kBandwidth, IBV_WR_RDMA_WRITE, true}},
    {"write_awaited", {Measure::kAwaited, IBV_WR_RDMA_WRITE}},
    {"read_awaited", {Measure::kAwaited, IBV_WR_RDMA_READ}},
    {"send_rate", {Measure::kMessageRate, IBV_WR_SEND}},
    {"send_rate_inline", {Measure::kMessageRate, IBV_WR_SEND, false, true}},
    {"latency_poll", {Measure::kLatency, IBV_WR_SEND, false, true}},
    {"latency_events", {Measure::kLatency, IBV_WR_SEND, true, true}},
    {"connections", {Measure::kConnections}},
};

uint32_t Number(const std::string& text, const std::string& figure) {
  try {
    return static_cast<uint32_t>(std::stoul(text));
  } catch (const std::exception&) {
    throw Failure("not a number in " + figure + ": " + text);
  }
}

}  // namespace

Figure ParseFigure(const std::string& text) {
  std::stringstream parts(text);
  std::string part;
  std::getline(parts, part, ':');
  const auto found = kFigures.find(part);
  if (found == kFigures.end()) throw Failure("no such figure: " + text);
  Figure figure = found->second;
  if (std::getline(parts, part, ':')) figure.bytes = Number(part, text);
  if (std::getline(parts, part, ':')) figure.count = Number(part, text);
  if (figure.count == 0 || figure.count > kMostQps) {
    throw Failure("a count is 1 to " + std::to_string(kMostQps) + ": " + text);
  }
  if (figure.inline_data && figure.bytes > kInlineBytes) {
    throw Failure("inline data has " + std::to_string(kInlineBytes) + " bytes at most: " + text);
  }
  return figure;
}

}  // namespace rdma_bench
