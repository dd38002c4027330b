# What every target of ours shares: the standard, the warnings, and one function per kind of target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

option(COPUS_FUZZ "build the fuzz targets alone (needs clang's libFuzzer)" OFF)

function(copus_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Werror)
endfunction()

# For code that runs briefly: a release compiles it in two thirds of the time.
function(copus_compiled_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# copus_library(name SOURCES … [DEPS …]): the target copus_<name> for folder copus/<name>.
function(copus_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(copus_${name} STATIC ${arg_SOURCES})
  target_include_directories(copus_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(copus_${name} PUBLIC ${arg_DEPS})
  copus_warnings(copus_${name})
endfunction()

# copus_test(name SOURCES … DEPS … [LABELS …]): one GoogleTest binary, its cases known to ctest one by one.
function(copus_test name)
  if(NOT BUILD_TESTING OR COPUS_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest_main)
  copus_warnings(${name})
  # Those of the engine share its precompiled header, and so its options.
  if(NOT "copus_train" IN_LIST arg_DEPS)
    copus_compiled_quickly(${name})
  endif()
  gtest_discover_tests(${name} PROPERTIES LABELS "${arg_LABELS}" DISCOVERY_TIMEOUT 60)
endfunction()
