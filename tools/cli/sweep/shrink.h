// Reduces a case of several faults to the fewest that still show the same verdict.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rdmaemu::cli {

// Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
// algorithm ddmin). `still_fails(items)` runs the case with these items. It must hold for `items`.
// Returns items of which none can be left out.
template <class Item, class StillFails>
std::vector<Item> Shrink(std::vector<Item> items, StillFails still_fails) {
  for (size_t parts = 2; items.size() >= 2;) {
    const size_t part = (items.size() + parts - 1) / parts;
    bool is_reduced = false;
    for (size_t begin = 0; begin < items.size() && !is_reduced; begin += part) {
      std::vector<Item> rest = items;
      const size_t end = std::min(begin + part, items.size());
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(begin),
                 rest.begin() + static_cast<std::ptrdiff_t>(end));
      if (rest.empty() || !still_fails(rest)) continue;
      items = std::move(rest);
      is_reduced = true;
    }
    if (is_reduced) {
      parts = std::max<size_t>(2, parts - 1);
    } else if (part == 1) {
      break;
    } else {
      parts = std::min(items.size(), parts * 2);
    }
  }
  return items;
}

}  // namespace rdmaemu::cli
