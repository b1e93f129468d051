#include "tools/cli/sweep/threads.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLines = 200;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void AddStacks(pid_t process, std::vector<std::string>& lines) {
  const std::string command = "timeout " + std::to_string(kStacksWithin_s) + " gdb -nx -batch -p " +
                              std::to_string(process) +
                              " -ex 'thread apply all bt 16' </dev/null 2>/dev/null";
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  char line[512];
  while (pipe != nullptr && fgets(line, sizeof line, pipe.get()) != nullptr) {
    std::string text = line;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    const bool is_of_a_stack = text.starts_with("#") || text.starts_with("Thread ");
    if (is_of_a_stack && lines.size() < kMaxLines) lines.push_back("  " + text);
  }
}

}  // namespace

std::vector<std::string> WaitingThreads(const std::vector<pid_t>& processes) {
  std::vector<std::string> lines;
  for (const pid_t process : processes) {
    const fs::path directory = "/proc/" + std::to_string(process);
    if (FirstLine(directory / "comm").starts_with("rdmaemu")) continue;
    std::error_code error;
    for (const auto& thread : fs::directory_iterator(directory / "task", error)) {
      if (lines.size() >= kMaxLines) return lines;
      const std::string wait = FirstLine(thread.path() / "wchan");
      lines.push_back(
          "process " + std::to_string(process) + ", thread " + thread.path().filename().string() +
          " (" + FirstLine(thread.path() / "comm") +
          "): " + (wait.empty() || wait == "0" ? "runs" : "waits in the kernel's " + wait));
    }
    AddStacks(process, lines);
  }
  return lines;
}

}  // namespace rdmaemu::cli
