// Stable names in place of pointers and numbers: what one process of a program trace knows of RDMA
// objects.
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
  // A call has made an object at this address: whatever was there before has ended. The object gets
  // its name when the trace first mentions it.
  void Create(std::string_view kind, uint64_t address);
  // What the device chose for the object, in the order of layer::trace::ObjectNumbers.
  void Learn(std::string_view kind, uint64_t address, layer::trace::ObjectNumbers numbers);

  // "qp1"; numbers count from 1 in the order of first mention and are never reused.
  const std::string& Name(std::string_view kind, uint64_t address);
  // "qp1.qp_num" of a number that belongs to an object of this process; "" when none has it.
  std::string NumberName(layer::trace::NumberOf which, uint64_t number);
  // The QP that has a number; "" when none has it.
  std::string QpOf(uint32_t number);

  // Whether a member of an object is mentioned for the first time, or has changed since.
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
