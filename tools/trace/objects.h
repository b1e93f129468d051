// Tables of the calls of libibverbs and librdmacm that create and destroy objects, and the stable
// names of objects.
#pragma once

#include <string>
#include <string_view>

namespace rdmaemu::trace_tools {

// Returns "qp" for "qp1" and for "qp1.qp_num". Returns an empty text when `text` is no stable name.
std::string_view KindOfName(std::string_view text);
// Returns "qp1" for "qp1.qp_num". Returns an empty text when `text` is no stable name.
std::string_view NameIn(std::string_view text);

// Returns the kind of object that a successful call creates or destroys. The tables have only
// objects that the program must destroy. Returns an empty text for all other calls. `what` is the
// name of a call without `ibv_`.
std::string_view KindCreatedBy(std::string_view what);
std::string_view KindDestroyedBy(std::string_view what);

}  // namespace rdmaemu::trace_tools
