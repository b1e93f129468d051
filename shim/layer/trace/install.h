// Puts the recording functions into the slots of a forwarding library.
#pragma once

namespace rdmaemu::layer::trace {

void InstallVerbs();  // when a recording is open
void InstallCm();

}  // namespace rdmaemu::layer::trace
