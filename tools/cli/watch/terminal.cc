#include "tools/cli/watch/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace rdmaemu::cli {
namespace {

constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kOtherSignals = {SIGTSTP, SIGCONT, SIGWINCH};

// Alternate screen, hidden cursor. The reverse restores what the terminal showed before.
constexpr std::string_view kEnterScreen = "\033[?1049h\033[?25l";
constexpr std::string_view kLeaveScreen = "\033[?25h\033[?1049l";

int signal_pipe = -1;
volatile sig_atomic_t ending_signal = 0;

void NoteSignal(int number) {
  const int saved = errno;
  if (std::ranges::count(kEndingSignals, number) != 0 && ending_signal == 0) {
    ending_signal = number;
  }
  const auto byte = static_cast<unsigned char>(number);
  // A full pipe already wakes the loop.
  [[maybe_unused]] const ssize_t written = write(signal_pipe, &byte, 1);
  errno = saved;
}

// Without SA_RESTART, so that a signal interrupts a write that blocks.
struct sigaction CatchingAction() {
  struct sigaction action {};
  action.sa_handler = NoteSignal;
  sigemptyset(&action.sa_mask);
  return action;
}

// Writes all bytes to the terminal. Does not wait for a terminal that is gone.
void WriteEscapes(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

WatchSignals::WatchSignals() {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return;
  read_end_.Reset(ends[0]);
  write_end_.Reset(ends[1]);
  signal_pipe = ends[1];
  ending_signal = 0;
  const struct sigaction catching = CatchingAction();
  const auto watch = [&](int number) {
    struct sigaction former {};
    sigaction(number, nullptr, &former);
    if (former.sa_handler == SIG_IGN) return;
    sigaction(number, &catching, nullptr);
    former_.emplace_back(number, former);
  };
  for (const int number : kEndingSignals) watch(number);
  for (const int number : kOtherSignals) watch(number);
}

WatchSignals::~WatchSignals() {
  for (const auto& [number, former] : former_) sigaction(number, &former, nullptr);
  signal_pipe = -1;
}

void WatchSignals::Drain() {
  unsigned char byte = 0;
  while (read(read_end_.get(), &byte, 1) == 1) arrived_.push_back(byte);
}

int WatchSignals::Take() {
  Drain();
  if (arrived_.empty()) return 0;
  const int number = arrived_.front();
  arrived_.pop_front();
  return number;
}

int WatchSignals::ending() { return ending_signal; }

void WatchSignals::Stop() {
  signal(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  const struct sigaction catching = CatchingAction();
  sigaction(SIGTSTP, &catching, nullptr);
}

bool Terminal::IsUsable() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && kind != nullptr && *kind != '\0' &&
         std::strcmp(kind, "dumb") != 0;
}

bool Terminal::AllowsColours() {
  const char* const forbids = std::getenv("NO_COLOR");
  return forbids == nullptr || *forbids == '\0';
}

void Terminal::Enter() {
  termios now{};
  if (tcgetattr(STDIN_FILENO, &now) == 0) {
    if (!former_) former_ = now;
    key_fd_ = STDIN_FILENO;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    // A read without a key returns at once.
    now.c_cc[VMIN] = 0;
    now.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
  }
  WriteEscapes(kEnterScreen);
}

void Terminal::Leave() {
  WriteEscapes(kLeaveScreen);
  // Keys that nobody has read are dropped, so that the shell does not read them.
  if (former_) tcsetattr(STDIN_FILENO, TCSAFLUSH, &*former_);
  former_.reset();
}

TerminalSize Terminal::size() const {
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0 || window.ws_col == 0) {
    return {24, 80};
  }
  return {window.ws_row, window.ws_col};
}

bool Terminal::Show(const std::vector<std::string>& lines, WatchSignals& signals) {
  // Each line is erased before it is written. A line as wide as the window leaves the cursor on its
  // last character, which an escape behind the line would erase.
  std::string text = "\033[H";
  for (size_t i = 0; i < lines.size(); i++) text += (i == 0 ? "\033[K" : "\r\n\033[K") + lines[i];
  if (lines.size() < size().rows) text += "\r\n\033[J";
  return WriteOutput(text, signals);
}

char Terminal::ReadKey() {
  char key = '\0';
  return read(key_fd_, &key, 1) == 1 ? key : '\0';
}

bool WriteOutput(std::string_view text, WatchSignals& signals) {
  while (!text.empty()) {
    signals.Drain();
    if (WatchSignals::ending() != 0) {
      errno = EINTR;
      return false;
    }
    std::array<pollfd, 2> ready{{{STDOUT_FILENO, POLLOUT, 0}, {signals.fd(), POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return false;
    if (ready[0].revents == 0) continue;
    // A pipe that is ready accepts this much without blocking.
    const ssize_t written =
        write(STDOUT_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace rdmaemu::cli
