// Reads the files of a recording as one sequence of records, sorted by time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "shim/layer/trace/record.h"

namespace rdmaemu::cli {

// A file that is mapped for reading. It has 0 bytes when the file is empty or cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  const char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  const char* data_ = nullptr;
  size_t bytes_ = 0;
};

// One record, and the process, image and thread that made it.
struct RecordOfThread {
  uint32_t process, image, thread;
  const layer::trace::RecordHeader* header;
};

// A process that could not open the recording.
struct UnopenedProcess {
  uint32_t process;
  std::string reason;
};

class Recording {
 public:
  static tl::expected<Recording, std::string> Open(const std::string& directory);

  // Returns the processes that created a link with the reason in the directory
  // (layer::trace::kUnopenedSuffix), and the processes of AddUnopened.
  const std::vector<UnopenedProcess>& unopened() const { return unopened_; }
  void AddUnopened(UnopenedProcess process) { unopened_.push_back(std::move(process)); }

  bool has_ticks() const { return has_ticks_; }
  bool hashes_payloads() const { return hashes_payloads_; }
  uint64_t lost(layer::trace::Loss loss) const { return lost_[static_cast<size_t>(loss)]; }

  // Calls `each` with every record, sorted by time. Records of one thread keep their order.
  void ForEach(const std::function<void(const RecordOfThread&)>& each) const;

 private:
  struct Thread {
    layer::trace::WindowHeader header;
    MappedFile log, window;
  };
  Recording() = default;

  bool has_ticks_ = false, hashes_payloads_ = false;
  std::array<uint64_t, static_cast<size_t>(layer::trace::Loss::kCount)> lost_ = {};
  std::vector<Thread> threads_;
  std::vector<UnopenedProcess> unopened_;
};

}  // namespace rdmaemu::cli
