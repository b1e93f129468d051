// Path records in the two layouts that programs see: 64 bytes of the SA's MAD (ib_sa_pack_path),
// and ib_user_path_rec.
#pragma once

#include <cstdint>
#include <span>

#include "emulator/base/uapi.h"
#include "emulator/cm/cma_id.h"

namespace rdmaemu::cm {

inline constexpr size_t kPathRecordBytes = 64;

void PackPath(const PathRecord& path, std::span<uint8_t, kPathRecordBytes> out);
PathRecord UnpackPath(std::span<const uint8_t, kPathRecordBytes> in);
ib_user_path_rec ToUserPath(const PathRecord& path);

}  // namespace rdmaemu::cm
