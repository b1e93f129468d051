// Puts the recording functions into the slots of a forwarding library. Call these functions only
// when a recording is open.
#pragma once

namespace rdmaemu::layer::trace {

void InstallVerbs();
void InstallCm();

}  // namespace rdmaemu::layer::trace
