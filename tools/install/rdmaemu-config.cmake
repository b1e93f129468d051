# find_package(rdmaemu) defines the target rdmaemu::rdmaemu, for tests that open a host in their
# process, and the function rdmaemu_add_test.
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
set(rdmaemu_RUN_PAIR "${_rdmaemu_prefix}/share/rdmaemu/run-pair")
unset(_rdmaemu_prefix)

# rdmaemu_add_test(NAME name SERVER program [arg...] CLIENT program [arg...]
#                  [PORT port] [SCENARIO file] [STRICT] [CLOCK mode] [TIMEOUT seconds]
#                  [SERVER_STAYS] [REPORT directory])
# adds a test that runs two programs, or targets of this project, on two emulated hosts: the server
# on host `server` (127.0.1.1), the client on host `client` (127.0.1.2). share/rdmaemu/run-pair has
# the options and statuses. Every word after SERVER or CLIENT that is not a keyword is an argument of
# the program.
function(rdmaemu_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERVER_STAYS;STRICT"
    "NAME;PORT;SCENARIO;CLOCK;TIMEOUT;REPORT" "SERVER;CLIENT")
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "rdmaemu_add_test does not understand: "
      "${arg_UNPARSED_ARGUMENTS} ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  foreach(needed NAME SERVER CLIENT)
    if(NOT DEFINED arg_${needed})
      message(FATAL_ERROR "rdmaemu_add_test needs ${needed}")
    endif()
  endforeach()
  foreach(side SERVER CLIENT)
    list(GET arg_${side} 0 program)
    if(TARGET "${program}")
      list(REMOVE_AT arg_${side} 0)
      list(INSERT arg_${side} 0 "$<TARGET_FILE:${program}>")
    endif()
  endforeach()
  if(NOT DEFINED arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(options --timeout "${arg_TIMEOUT}")
  if(DEFINED arg_PORT)
    list(APPEND options --port "${arg_PORT}")
  endif()
  if(DEFINED arg_SCENARIO)
    get_filename_component(scenario "${arg_SCENARIO}" ABSOLUTE)
    list(APPEND options --scenario "${scenario}")
  endif()
  if(DEFINED arg_CLOCK)
    list(APPEND options --clock "${arg_CLOCK}")
  endif()
  if(arg_SERVER_STAYS)
    list(APPEND options --server-stays)
  endif()
  if(arg_STRICT)
    list(APPEND options --strict)
  endif()
  if(DEFINED arg_REPORT)
    get_filename_component(reports "${arg_REPORT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
    list(APPEND options --report "${reports}/${arg_NAME}")
  endif()
  add_test(NAME "${arg_NAME}" COMMAND bash "${rdmaemu_RUN_PAIR}" ${options}
    -- ${arg_SERVER} ::: ${arg_CLIENT})
  # run-pair ends its programs itself. CTest ends run-pair only if that fails.
  math(EXPR limit "${arg_TIMEOUT} + 30")
  set_tests_properties("${arg_NAME}" PROPERTIES TIMEOUT "${limit}")
endfunction()
