// A time as decimal seconds with nine digits behind the point, which loses nothing.
#pragma once

#include <string>

#include "emulator/base/time.h"

namespace rdmaemu::trace {

void AppendSeconds(Duration time, std::string& out);

}  // namespace rdmaemu::trace
