// service serve PORT                answers requests until SIGTERM or SIGINT
// service ask ADDRESS PORT TEXT...  prints the answer to each TEXT
#include <sys/signalfd.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client.h"
#include "server.h"

namespace {

using shout::Client;

std::string Capitals(std::string_view text) {
  std::string answer(text);
  for (char& letter : answer)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return answer;
}

int Serve(uint16_t port) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int end_signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  shout::Context context;
  shout::Server server(context, port, Capitals);
  const shout::Watch watch(context.loop, end_signals, [&] {
    signalfd_siginfo signal;
    if (read(end_signals, &signal, sizeof signal) > 0) server.Stop();
  });
  std::printf("port %u\n", server.port());
  std::fflush(stdout);
  while (!server.stopped()) context.loop.RunOnce();
  return 0;
}

int Ask(const char* address, uint16_t port, char** texts) {
  shout::Context context;
  Client client(context, address, port);
  while (client.state() == Client::State::kConnecting ||
         client.state() == Client::State::kPausing) {
    context.loop.RunOnce();
  }
  if (client.state() == Client::State::kGivenUp) throw std::runtime_error(client.reason());
  bool is_answered = true;
  for (; *texts != nullptr; texts++) {
    is_answered &= client.Ask(*texts, [&](Client::Outcome outcome, std::string_view answer) {
      if (outcome != Client::Outcome::kAnswered) is_answered = false;
      std::printf("%.*s\n", static_cast<int>(answer.size()), answer.data());
    });
  }
  client.Stop();
  while (client.state() != Client::State::kStopped) context.loop.RunOnce();
  return is_answered ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "serve" && argc == 3) return Serve(static_cast<uint16_t>(std::atoi(argv[2])));
  if (command == "ask" && argc > 4) {
    return Ask(argv[2], static_cast<uint16_t>(std::atoi(argv[3])), argv + 4);
  }
  std::fprintf(stderr, "usage: service serve PORT | service ask ADDRESS PORT TEXT...\n");
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "service: %s\n", error.what());
  return 1;
}
