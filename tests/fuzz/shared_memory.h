// Arbitrary writes of programs into the memory that they share with their host, mostly at sensitive
// positions.
#pragma once

#include "tests/fuzz/scene.h"

namespace rdmaemu::fuzz {

// Changes some bytes of one of the segments that the host shares with its programs.
void Scribble(DataScene& scene, Input& in);

// Makes one action of the program, of time, or of Scribble.
void ActAndScribble(DataScene& scene, Input& in);

}  // namespace rdmaemu::fuzz
