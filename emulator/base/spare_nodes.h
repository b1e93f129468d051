// Memory of removed elements for the next elements of the same kind of map or set. A container
// whose elements come and go then allocates nothing.
#pragma once

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace rdmaemu {

// A removed element keeps its value until the node is used again. Not thread-safe.
template <class Container>
class SpareNodes {
 public:
  using Iterator = typename Container::iterator;
  static constexpr size_t kMost = 32;  // the memory of more removed elements is freed

  // Removes the element. Returns the iterator to the next one.
  Iterator Erase(Container& from, Iterator element) {
    const Iterator next = std::next(element);
    if (nodes_.size() < kMost) {
      nodes_.push_back(from.extract(element));
    } else {
      from.erase(element);
    }
    return next;
  }
  void Erase(Container& from, const typename Container::key_type& key) {
    if (const Iterator found = from.find(key); found != from.end()) Erase(from, found);
  }
  // Adds an element, whose value is made of `value`: of a set the element, of a map the key and the
  // mapped value. The container must not have the key. `hint` is where the element belongs.
  template <class... Value>
  Iterator Insert(Container& to, Iterator hint, Value&&... value) {
    if (nodes_.empty()) return to.emplace_hint(hint, std::forward<Value>(value)...);
    typename Container::node_type node = std::move(nodes_.back());
    nodes_.pop_back();
    Fill(node, std::forward<Value>(value)...);
    return to.insert(hint, std::move(node));
  }
  template <class... Value>
  Iterator Insert(Container& to, Value&&... value) {
    return Insert(to, to.end(), std::forward<Value>(value)...);
  }

 private:
  using Node = typename Container::node_type;
  template <class Value>
  static void Fill(Node& node, Value&& value) {
    node.value() = std::forward<Value>(value);
  }
  template <class Key, class Mapped>
  static void Fill(Node& node, Key&& key, Mapped&& mapped) {
    node.key() = std::forward<Key>(key);
    node.mapped() = std::forward<Mapped>(mapped);
  }

  std::vector<Node> nodes_;
};

}  // namespace rdmaemu
