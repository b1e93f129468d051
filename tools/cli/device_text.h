// Describes a device of a host's status (emulator/host/status.h) in words.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rdmaemu::cli {

// Returns text such as "rxe0 (rxe, port down): 127.0.1.1; inside only: 192.168.1.5".
std::string DeviceText(const nlohmann::ordered_json& device);

}  // namespace rdmaemu::cli
