// The findings of the usage checks of `run --check` (docs/checks.md).
#pragma once

#include <ios>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace rdmaemu::cli {

struct ChecksRequest {
  bool is_wanted = false;
  bool is_error = false;       // a finding turns the program's success into failure
  std::string json_path = {};  // "": none
};

// The directory in which the checks of a program's processes report. The destructor removes it.
class Checks {
 public:
  // Creates the directory, and the file of --check-json. Returns an error message for the user.
  static tl::expected<Checks, std::string> Begin(const ChecksRequest& request);
  Checks(Checks&& other) noexcept
      : json_path_(std::move(other.json_path_)), directory_(std::exchange(other.directory_, "")) {}
  Checks& operator=(Checks&&) = delete;
  ~Checks();

  // Returns the value of RDMAEMU_LAYER_CHECKS_DIRECTORY for the program.
  const std::string& directory() const { return directory_; }

  // Prints the new findings.
  void Look();

  struct Result {
    bool has_findings = false;
    std::vector<std::string> errors;  // reasons why findings are lost
  };
  // Prints how often each rule was broken, and writes the file of --check-json. Call it after the
  // program has ended. `status`: the program's exit status.
  Result End(int status);

 private:
  Checks() = default;

  std::string json_path_, directory_;
  std::streamoff read_bytes_ = 0;
  std::vector<std::string> lines_;  // findings that were printed
};

}  // namespace rdmaemu::cli
