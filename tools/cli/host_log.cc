#include "tools/cli/host_log.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/cli/running_host.h"

namespace rdmaemu::cli {
namespace {

using SortedJson = nlohmann::json;

size_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<size_t>(size);
}

// Returns true if the host ended without writing its files. A host that ends by itself removes its
// record. A host that a fault rule ends writes a crash file.
bool WasKilled(pid_t host, const runtime::Registry& registry, const std::string& name) {
  // The host's sockets close before its record is removed.
  if (!AwaitEnd(registry, name, host)) return false;
  const auto record = registry.ReadRecord(name);
  return record && record->pid == host && !registry.ReadCrash(name, host);
}

}  // namespace

HostLog::HostLog(const runtime::Registry& registry, const std::string& name)
    : name_(name), path_(registry.LogPath(name)), offset_(SizeOf(path_)) {
  if (const auto record = registry.ReadRecord(name)) host_ = record->pid;
}

void HostLog::Joined(pid_t host) {
  if (host != host_) offset_ = 0;
  host_ = host;
}

std::string HostLog::Read(size_t from) const {
  const size_t size = SizeOf(path_);
  if (size > kMaxBytes) from = std::max(from, size - kMaxBytes);
  if (size <= from) return {};
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(from));
  std::string text(size - from, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

void HostLog::Print(bool is_complete) const {
  std::string text = Read(is_complete ? 0 : offset_);
  if (text.empty()) return;
  if (text.back() != '\n') text += '\n';
  const auto lines = static_cast<size_t>(std::ranges::count(text, '\n'));
  size_t start = 0;
  for (size_t skipped = kMaxLines; skipped < lines; skipped++) start = text.find('\n', start) + 1;
  fprintf(stderr, "note: host %s wrote to its log %s%s:\n", name_.c_str(), path_.c_str(),
          lines > kMaxLines ? ", which ends with" : "");
  while (start < text.size()) {
    const size_t end = text.find('\n', start);
    fprintf(stderr, "  %s\n", text.substr(start, end - start).c_str());
    start = end + 1;
  }
}

bool ReportCutFiles(runtime::HostClient& client, const HostLog& log,
                    const runtime::Registry& registry, const runtime::HostOptions& options) {
  const Result<std::string> status = client.Status();
  const SortedJson json = status ? SortedJson::parse(*status, nullptr, false) : SortedJson();
  if (!json.is_object()) {
    const std::string& lost = options.trace_path.empty() ? options.pcap_path : options.trace_path;
    if (lost.empty() || (!status && status.error().code == ETIMEDOUT) ||
        !WasKilled(client.host_pid(), registry, options.name)) {
      return !log.HasError();
    }
    fprintf(stderr, "error: %s may lack its last records: host %s was killed; run it again\n",
            lost.c_str(), options.name.c_str());
    return false;
  }
  bool is_whole = true;
  for (const SortedJson& file : json.value("files", SortedJson::array())) {
    const std::string error = file.value("error", "");
    if (error.empty()) continue;
    is_whole = false;
    fprintf(stderr, "error: %s %s is cut: the host could not write it: %s\n",
            file.value("option", "").c_str(), file.value("path", "").c_str(), error.c_str());
  }
  return is_whole;
}

}  // namespace rdmaemu::cli
