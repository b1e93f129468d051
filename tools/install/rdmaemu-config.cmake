# find_package(rdmaemu) defines the target rdmaemu::rdmaemu, for tests that open a host in their
# process.
get_filename_component(_rdmaemu_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET rdmaemu::rdmaemu)
  add_library(rdmaemu::rdmaemu SHARED IMPORTED)
  # DT_RPATH also applies to the libraries' own dependencies, so librdmacm.so.1 finds the
  # libibverbs.so.1 in the same directory. A program that calls neither library still needs both.
  set_target_properties(rdmaemu::rdmaemu PROPERTIES
    IMPORTED_LOCATION "${_rdmaemu_prefix}/lib/rdmaemu/librdmaemu.so.1"
    IMPORTED_SONAME librdmaemu.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${_rdmaemu_prefix}/include"
    INTERFACE_LINK_LIBRARIES
      "-Wl,--push-state,--no-as-needed;rdmacm;ibverbs;-Wl,--pop-state"
    INTERFACE_LINK_OPTIONS
      "LINKER:--disable-new-dtags;LINKER:-rpath,${_rdmaemu_prefix}/lib/rdmaemu")
endif()
unset(_rdmaemu_prefix)
