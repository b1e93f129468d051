#include "tools/cli/program_trace/objects.h"

namespace rdmaemu::cli {

using layer::trace::NumberOf;

void ObjectNames::Create(std::string_view kind, uint64_t address) {
  if (address == 0) return;
  by_address_[{std::string(kind), address}] = objects_.size();
  objects_.push_back({std::string(kind), ""});
}

void ObjectNames::Learn(std::string_view kind, uint64_t address,
                        layer::trace::ObjectNumbers numbers) {
  if (address == 0 || (numbers.first == 0 && numbers.second == 0)) return;
  const size_t index = IndexOf(kind, address);
  if (kind == "qp") {
    by_number_[{NumberOf::kQp, numbers.first}] = index;
    return;
  }
  if (numbers.first != 0) by_number_[{NumberOf::kLkey, numbers.first}] = index;
  if (numbers.second != 0) by_number_[{NumberOf::kRkey, numbers.second}] = index;
}

const std::string& ObjectNames::Name(std::string_view kind, uint64_t address) {
  return NameAt(IndexOf(kind, address));
}

std::string ObjectNames::NumberName(NumberOf which, uint64_t number) {
  const auto found = by_number_.find({which, number});
  if (found == by_number_.end()) return "";
  const char* const suffix = which == NumberOf::kQp     ? ".qp_num"
                             : which == NumberOf::kLkey ? ".lkey"
                                                        : ".rkey";
  return NameAt(found->second) + suffix;
}

std::string ObjectNames::QpOf(uint32_t number) {
  const auto found = by_number_.find({NumberOf::kQp, number});
  return found == by_number_.end() ? "" : NameAt(found->second);
}

bool ObjectNames::IsNews(const std::string& member, uint64_t address) {
  return std::exchange(members_[member], address) != address;
}

size_t ObjectNames::IndexOf(std::string_view kind, uint64_t address) {
  const std::pair<std::string, uint64_t> key(kind, address);
  const auto found = by_address_.find(key);
  if (found != by_address_.end()) return found->second;
  Create(kind, address);
  return by_address_[key];
}

const std::string& ObjectNames::NameAt(size_t index) {
  Object& object = objects_[index];
  if (object.name.empty()) object.name = object.kind + std::to_string(++counts_[object.kind]);
  return object.name;
}

}  // namespace rdmaemu::cli
