#include "tools/cli/program_trace/recording.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <queue>
#include <tuple>
#include <utility>

namespace rdmaemu::cli {

namespace fs = std::filesystem;
namespace format = layer::trace;

MappedFile::MappedFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0) {
    bytes_ = static_cast<size_t>(status.st_size);
    void* const memory = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    data_ = memory == MAP_FAILED ? nullptr : static_cast<const char*>(memory);
  }
  if (fd >= 0) close(fd);
  if (data_ == nullptr) bytes_ = 0;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
}

tl::expected<Recording, std::string> Recording::Open(const std::string& directory) {
  Recording recording;
  const MappedFile control(directory + "/" + format::kControlFile);
  if (control.bytes() < sizeof(format::Control)) {
    return tl::unexpected(std::string("the recording has no control file"));
  }
  const auto& head = *reinterpret_cast<const format::Control*>(control.data());
  recording.hashes_payloads_ = head.hashes_payloads != 0;
  recording.has_ticks_ = head.clock == format::Clock::kTicks;
  for (size_t i = 0; i < recording.lost_.size(); i++) recording.lost_[i] = head.lost[i].load();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == format::kUnopenedSuffix) {
      std::error_code unreadable;
      recording.unopened_.push_back(
          {static_cast<uint32_t>(std::strtoul(entry.path().stem().c_str(), nullptr, 10)),
           fs::read_symlink(entry.path(), unreadable).string()});
    }
    if (entry.path().extension() != format::kWindowSuffix) continue;
    MappedFile window(entry.path().string());
    format::WindowHeader header;
    if (window.bytes() < sizeof header) continue;
    std::memcpy(&header, window.data(), sizeof header);
    if (header.magic != format::kMagic) continue;
    fs::path log = entry.path();
    log.replace_extension(format::kLogSuffix);
    recording.threads_.push_back({header, MappedFile(log.string()), std::move(window)});
  }
  if (error) return tl::unexpected("cannot read the recording: " + error.message());
  return recording;
}

namespace {

// A position in the records of one thread. The records of the thread's log are before those of its
// window.
class Place {
 public:
  Place(const format::WindowHeader& thread, const MappedFile& log, const MappedFile& window)
      : thread_(&thread), file_(&log), window_(&window) {
    if (thread.position & format::kIsInLog) window_ = nullptr;
    end_ = std::min<size_t>(log.bytes(), thread.position & ~format::kIsInLog);
    Settle();
  }
  bool is_at_end() const { return file_ == nullptr; }
  const format::WindowHeader& thread() const { return *thread_; }
  const format::RecordHeader* header() const {
    return reinterpret_cast<const format::RecordHeader*>(file_->data() + offset_);
  }
  void Advance() {
    offset_ += header()->bytes;
    Settle();
  }
  auto key() const { return std::tuple(header()->time, thread_->image, thread_->thread); }

 private:
  // Returns the length of the record at `offset`. Returns 0 when there is no record.
  static uint16_t LengthAt(const MappedFile& file, size_t offset, size_t end) {
    format::RecordHeader header;
    if (offset + sizeof header > end) return 0;
    std::memcpy(&header, file.data() + offset, sizeof header);
    return header.bytes >= sizeof header && offset + header.bytes <= end ? header.bytes : 0;
  }
  // Moves to the window at the end of the log.
  void Settle() {
    while (file_ != nullptr && LengthAt(*file_, offset_, end_) == 0) {
      file_ = std::exchange(window_, nullptr);
      offset_ = sizeof(format::WindowHeader);
      end_ = file_ == nullptr ? 0 : file_->bytes();
    }
  }

  const format::WindowHeader* thread_;
  const MappedFile* file_;
  const MappedFile* window_;  // the file after `file_`; nullptr: none
  size_t offset_ = 0, end_ = 0;
};

}  // namespace

void Recording::ForEach(const std::function<void(const RecordOfThread&)>& each) const {
  const auto is_later = [](const Place& a, const Place& b) { return a.key() > b.key(); };
  std::priority_queue<Place, std::vector<Place>, decltype(is_later)> queue(is_later);
  for (const Thread& thread : threads_) {
    Place place(thread.header, thread.log, thread.window);
    if (!place.is_at_end()) queue.push(place);
  }
  while (!queue.empty()) {
    Place place = queue.top();
    queue.pop();
    each({place.thread().process, place.thread().image, place.thread().thread, place.header()});
    place.Advance();
    if (!place.is_at_end()) queue.push(place);
  }
}

}  // namespace rdmaemu::cli
