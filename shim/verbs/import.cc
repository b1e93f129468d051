// Imports objects of another process by descriptor and handle. rxe does not support this.

#include <sys/stat.h>

#include "shim/verbs/objects.h"

using rdmaemu::shim::kCommandFile;
using rdmaemu::shim::NullWith;

// Fails as libibverbs does: EINVAL for a file that is not a character device, ENODEV for another
// device than that of ibv_context::cmd_fd, EOPNOTSUPP for a provider without import.
RDMAEMU_EXPORT ibv_context* ibv_import_device(int fd) {
  struct stat given, ours;
  if (fstat(fd, &given) != 0 || !S_ISCHR(given.st_mode)) return NullWith(EINVAL);
  const bool is_ours = stat(kCommandFile, &ours) == 0 && given.st_rdev == ours.st_rdev;
  return NullWith(is_ours ? EOPNOTSUPP : ENODEV);
}
RDMAEMU_EXPORT ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return NullWith(EOPNOTSUPP); }
RDMAEMU_EXPORT ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return NullWith(EOPNOTSUPP); }
RDMAEMU_EXPORT ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return NullWith(EOPNOTSUPP); }
// Nothing can be imported, so there is nothing to free.
RDMAEMU_EXPORT void ibv_unimport_pd(ibv_pd*) {}
RDMAEMU_EXPORT void ibv_unimport_mr(ibv_mr*) {}
RDMAEMU_EXPORT void ibv_unimport_dm(ibv_dm*) {}
