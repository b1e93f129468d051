// What is around a host inside a process: memory that is the process's own, and a network on which
// there is nobody else.
#pragma once

#include <unistd.h>

#include "emulator/host/host.h"
#include "emulator/runtime/process_memory.h"

namespace rdmaemu::embedded {

// Reached through the kernel all the same: memory that is not there is an error of the transfer,
// and not the end of the program.
class OwnMemory final : public Memory {
 public:
  OwnMemory() : memory_([](const std::string&) {}) {}
  void AddProcess(ProcessId process) { memory_.AddProcess(process, getpid()); }

  Status Read(ProcessId process, std::span<const MemoryRange> from,
              std::span<std::byte> to) override {
    return memory_.Read(process, from, to);
  }
  Status Write(ProcessId process, std::span<const MemoryRange> to,
               std::span<const std::byte> from) override {
    return memory_.Write(process, to, from);
  }
  Status ReadParts(ProcessId process, std::span<const MemoryRange> from,
                   std::span<const std::span<std::byte>> to) override {
    return memory_.ReadParts(process, from, to);
  }
  Status WriteParts(ProcessId process, std::span<const MemoryRange> to,
                    std::span<const std::span<const std::byte>> from) override {
    return memory_.WriteParts(process, to, from);
  }
  Status Copy(ProcessId source, std::span<const MemoryRange> from, ProcessId destination,
              std::span<const MemoryRange> to) override {
    return memory_.Copy(source, from, destination, to);
  }
  bool Reachable(ProcessId process, MemoryRange range, bool write) override {
    return memory_.Reachable(process, range, write);
  }
  // No copies by polling threads: the thread that polls is the one that would copy anyway.
  uint32_t PidFor(ProcessId, ProcessId) override { return 0; }
  void LetOthersRun() override { memory_.LetOthersRun(); }

 private:
  runtime::ProcessMemory memory_;
};

// What leaves the host is lost, as on a wire with nobody at its other end.
class EmptyNetwork final : public Network {
 public:
  std::span<std::byte> Allocate(const wire::UdpFlow&, uint8_t, size_t bytes) override {
    lost_.resize(bytes);
    return lost_;
  }
  void Commit() override {}

 private:
  std::vector<std::byte> lost_;
};

}  // namespace rdmaemu::embedded
