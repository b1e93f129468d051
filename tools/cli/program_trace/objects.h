// Gives stable names to the RDMA objects of one process in a program trace. The names replace
// pointers and numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shim/layer/trace/describe.h"

namespace rdmaemu::cli {

class ObjectNames {
 public:
  // Records that a call created an object at this address. Any earlier object at this address no
  // longer exists. The object gets its name when the trace first mentions it.
  void Create(std::string_view kind, uint64_t address);
  // Records the numbers that the device chose for the object, in the order of
  // layer::trace::ObjectNumbers.
  void Learn(std::string_view kind, uint64_t address, layer::trace::ObjectNumbers numbers);

  // Returns the name of the object at this address: "qp1". Numbers count from 1 in the order of
  // first mention and are never reused.
  const std::string& Name(std::string_view kind, uint64_t address);
  // Returns "qp1.qp_num" for a number of an object of this process. Returns "" when no object has
  // the number.
  std::string NumberName(layer::trace::NumberOf which, uint64_t number);
  // Returns the name of the QP that has a number. Returns "" when no QP has it.
  std::string QpOf(uint32_t number);

  // Returns whether a member of an object is mentioned for the first time, or has changed since the
  // last mention.
  bool IsNews(const std::string& member, uint64_t address);

 private:
  struct Object {
    std::string kind, name;
  };
  size_t IndexOf(std::string_view kind, uint64_t address);
  const std::string& NameAt(size_t index);

  std::vector<Object> objects_;
  std::map<std::pair<std::string, uint64_t>, size_t> by_address_;
  std::map<std::pair<layer::trace::NumberOf, uint64_t>, size_t> by_number_;
  std::map<std::string, unsigned> counts_;
  std::map<std::string, uint64_t> members_;
};

}  // namespace rdmaemu::cli
