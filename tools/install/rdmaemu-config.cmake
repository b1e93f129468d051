# find_package(rdmaemu): the target rdmaemu::rdmaemu, for tests that open a host in their process.
get_filename_component(_rdmaemu_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET rdmaemu::rdmaemu)
  add_library(rdmaemu::rdmaemu SHARED IMPORTED)
  # DT_RPATH holds for the libraries' own libraries too: librdmacm.so.1 is to find the
  # libibverbs.so.1 beside it. A program that calls neither needs both all the same.
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
