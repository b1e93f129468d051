// The profiles of emulator/verbs/profiles as strings. The build generates the definition.
#pragma once

#include <string_view>
#include <vector>

namespace rdmaemu {

struct EmbeddedProfile {
  std::string_view file_name;  // "rxe.toml"
  std::string_view toml;
};
// In the order of the file names.
const std::vector<EmbeddedProfile>& EmbeddedProfiles();

}  // namespace rdmaemu
