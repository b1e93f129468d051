#include "tools/cli/watch/watch.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <optional>

#include "tools/cli/watch/host_poll.h"
#include "tools/cli/watch/table.h"
#include "tools/cli/watch/terminal.h"

namespace rdmaemu::cli {
namespace {

std::string LocalTime() {
  const time_t now = std::time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  return std::string(text.data(),
                     std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local));
}

class Watch {
 public:
  Watch(const runtime::Registry& registry, const WatchRequest& request)
      : registry_(registry), request_(request), polls_(registry, request.host) {
    if (!request.json && Terminal::IsUsable()) terminal_.emplace();
  }

  // Returns 0 after q, or the number of the signal that ended the command.
  runtime::OrMessage<int> Run() {
    WatchClock::time_point next_frame = WatchClock::now();
    while (WatchSignals::ending() == 0 && !has_quit_) {
      const auto now = WatchClock::now();
      if (!in_frame_ && now >= next_frame) {
        polls_.Ask(now);
        in_frame_ = true;
        next_frame = std::max(next_frame + request_.interval, now);
      }
      if (in_frame_ && polls_.IsComplete(now)) {
        in_frame_ = false;
        is_stale_ = true;
      }
      if (is_stale_ && !Draw(now)) {
        if (WatchSignals::ending() != 0) break;
        return tl::unexpected(std::string("cannot write to standard output: ") +
                              std::strerror(errno));
      }
      is_stale_ = false;
      Wait(in_frame_ ? polls_.NextLimit(now).value_or(now) : next_frame);
    }
    return WatchSignals::ending();
  }

 private:
  // Waits until `until`, and handles keys, signals and replies.
  void Wait(WatchClock::time_point until) {
    const std::vector<HostPoll*> asked = polls_.InProgress();
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0},
                               {terminal_ ? terminal_->key_fd() : -1, POLLIN, 0}};
    for (const HostPoll* host : asked) fds.push_back({host->fd(), POLLIN, 0});
    const auto left = std::max(until - WatchClock::now(), WatchClock::duration::zero());
    // Rounded up, so that poll(2) does not return before `until`.
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    if (poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(left_ms, INT_MAX))) <= 0) {
      return;
    }
    if (fds[0].revents != 0) HandleSignals();
    if (fds[1].revents & POLLIN) HandleKeys();
    if (fds[1].revents & ~POLLIN) terminal_->ForgetKeys();
    const auto now = WatchClock::now();
    for (size_t i = 0; i < asked.size(); i++) {
      if (fds[i + 2].revents == 0) continue;
      asked[i]->Receive(now);
      // A late reply is shown at once on a terminal.
      is_stale_ |= terminal_ && !in_frame_;
    }
  }

  void HandleSignals() {
    while (const int number = signals_.Take()) {
      if (number == SIGTSTP) {
        if (terminal_) terminal_->Leave();
        signals_.Stop();
      }
      if (!terminal_) continue;
      // The shell may have changed the terminal while the command was stopped.
      if (number == SIGTSTP || number == SIGCONT) terminal_->Enter();
      is_stale_ = !in_frame_;
    }
  }

  void HandleKeys() {
    while (const char key = terminal_->ReadKey()) has_quit_ |= key == 'q' || key == 'Q';
  }

  bool Draw(WatchClock::time_point now) {
    const std::vector<const HostPoll*> hosts = polls_.Listed(now);
    if (request_.json) {
      using Json = nlohmann::ordered_json;
      return WriteOutput(
          JsonOf(hosts, now).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", signals_);
    }
    std::vector<Line> lines = {{{LocalTime() + "  " + registry_.directory()}}};
    if (hosts.empty()) {
      lines.push_back(
          {{request_.host.empty() ? "no host is running"
                                  : "no host " + Printable(request_.host) + " is running"}});
    } else {
      const std::vector<Line> table = TableOf(hosts, now);
      lines.insert(lines.end(), table.begin(), table.end());
    }
    return terminal_ ? DrawOnTerminal(lines) : DrawPlain(lines);
  }

  // Tables follow each other, with an empty line between them.
  bool DrawPlain(const std::vector<Line>& lines) {
    std::string text = has_drawn_ ? "\n" : "";
    for (const Line& line : lines) text += PlainText(line) + "\n";
    has_drawn_ = true;
    return WriteOutput(text, signals_);
  }

  bool DrawOnTerminal(std::vector<Line> lines) {
    lines[0].push_back({"  q: quit", Style::kDim});
    const TerminalSize size = terminal_->size();
    if (lines.size() > size.rows) {
      const size_t hidden = lines.size() - size.rows + 1;
      lines.resize(size.rows - 1);
      lines.push_back({{std::to_string(hidden) + " more hosts", Style::kDim}});
    }
    std::vector<std::string> texts;
    for (const Line& line : lines) {
      texts.push_back(TerminalText(line, size.columns, Terminal::AllowsColours()));
    }
    return terminal_->Show(texts, signals_);
  }

  const runtime::Registry& registry_;
  const WatchRequest& request_;
  WatchSignals signals_;
  std::optional<Terminal> terminal_;  // empty: standard output is no terminal, or JSON is printed
  HostPolls polls_;
  bool in_frame_ = false;  // some hosts have not answered yet
  bool is_stale_ = false;  // the screen does not show the current state
  bool has_quit_ = false, has_drawn_ = false;
};

}  // namespace

runtime::OrMessage<int> WatchHosts(const runtime::Registry& registry, const WatchRequest& request) {
  const runtime::OrMessage<int> ended = Watch(registry, request).Run();
  if (!ended || *ended == 0) return ended;
  // The former action of the signal is in force again. By default it ends the process here, so that
  // a shell sees the signal.
  raise(*ended);
  return 128 + *ended;
}

}  // namespace rdmaemu::cli
