#include "tests/contract/support/command.h"

#include <poll.h>
#include <stdio.h>

#include <array>
#include <regex>

#include "tests/contract/support/environment.h"

namespace rdma_contract {

bool OnTheEmulator() { return !Variable("RDMA_TEST_RDMAEMU").empty(); }

std::string HostsJson() {
  FILE* pipe = popen(("'" + Variable("RDMA_TEST_RDMAEMU") + "' hosts --json").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> part;
  for (size_t got; (got = fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), got);
  pclose(pipe);
  return text;
}

bool HostsAreEmpty(int limit_ms) {
  static const std::regex something("\"(ids|qps|cqs|srqs|mrs|mws|ahs)\"\\s*:\\s*[1-9]");
  constexpr int kStep_ms = 50;
  for (int waited_ms = 0;; waited_ms += kStep_ms) {
    const std::string text = HostsJson();
    if (!text.empty() && !std::regex_search(text, something)) return true;
    if (waited_ms >= limit_ms) return false;
    poll(nullptr, 0, kStep_ms);
  }
}

pid_t ProcessOfHost(const std::string& name) {
  const std::regex rule("\"name\"\\s*:\\s*\"" + name + "\"\\s*,\\s*\"pid\"\\s*:\\s*([0-9]+)");
  const std::string text = HostsJson();
  std::smatch match;
  return std::regex_search(text, match, rule) ? std::stoi(match[1]) : -1;
}

}  // namespace rdma_contract
