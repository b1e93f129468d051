// What programs write into the memory that they share with their host: anything, anywhere, and most
// often where it matters.
#pragma once

#include "tests/fuzz/scene.h"

namespace rdmaemu::fuzz {

// Changes some bytes of one of the segments that the host shares with its programs.
void Scribble(DataScene& scene, Input& in);

// One thing that the program, time or its scribbling does.
void ActAndScribble(DataScene& scene, Input& in);

}  // namespace rdmaemu::fuzz
