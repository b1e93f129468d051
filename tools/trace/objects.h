// What the tools know of the calls of libibverbs and librdmacm: which calls create and destroy
// objects.
#pragma once

#include <string>
#include <string_view>

namespace rdmaemu::trace_tools {

// "qp" of "qp1" and of "qp1.qp_num"; empty: the text is no stable name.
std::string_view KindOfName(std::string_view text);
// "qp1" of "qp1.qp_num"; empty: the text is no stable name.
std::string_view NameIn(std::string_view text);

// Returns the kind of object that a successful call creates or destroys, and which its program then
// must destroy; empty: none. `what` is the name of a call without `ibv_`.
std::string_view KindCreatedBy(std::string_view what);
std::string_view KindDestroyedBy(std::string_view what);

}  // namespace rdmaemu::trace_tools
