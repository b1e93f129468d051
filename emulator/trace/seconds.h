// Formats a time in decimal seconds with nine digits after the point, without loss.
#pragma once

#include <string>

#include "emulator/base/time.h"

namespace rdmaemu::trace {

void AppendSeconds(Duration time, std::string& out);

}  // namespace rdmaemu::trace
