# Settings of all Copus targets: the standard, the warnings, and one function per kind of target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

# Installed programs look for libraries outside the system's folders, for example a wheel's libtorch, where the build found them.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# Makes g++ collect garbage only above a gigabyte, so that large files compile a tenth faster.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)

# Makes __FILE__ a path from the repository's root, so that the programs do not contain the folder where they were built.
add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")

option(COPUS_WERROR "warnings are errors; meant for Copus's own presets, whose compilers are known" OFF)
option(COPUS_FUZZ "build only the fuzz targets (needs clang's libFuzzer)" OFF)

# Most tests take seconds on an idle machine. The limit allows for other work on the machine and for sanitizers.
set(COPUS_LONG_TEST_S 900)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(COPUS_LONG_TEST_S 3600)
endif()

function(copus_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion $<$<BOOL:${COPUS_WERROR}>:-Werror>)
endfunction()

# For code that runs only briefly: at -O1 a release build compiles it in two thirds of the time.
function(copus_compiled_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  # At -O1 some versions of g++ warn of uninitialised variables by mistake.
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
endfunction()

# copus_library(name SOURCES … [DEPS …]): makes the target copus_<name> for one folder, copus/<name> or copus/train/<name>.
function(copus_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(copus_${name} STATIC ${arg_SOURCES})
  target_include_directories(copus_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(copus_${name} PUBLIC ${arg_DEPS})
  copus_warnings(copus_${name})
endfunction()

# copus_test(name SOURCES … DEPS … [LABELS …] [PROCESSES n]): makes one GoogleTest binary. ctest runs each of its cases alone. With
# PROCESSES n, ctest runs n shards instead (<name>.0 and so on), for cases that take longer to start than to run.
function(copus_test name)
  if(NOT BUILD_TESTING OR COPUS_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "TORCH" "PROCESSES" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest_main)
  copus_warnings(${name})
  # The engine's tests (TORCH) share its precompiled header, so they must have its options.
  if(NOT arg_TORCH)
    copus_compiled_quickly(${name})
  endif()
  if(NOT arg_PROCESSES)
    gtest_discover_tests(${name} PROPERTIES LABELS "${arg_LABELS}" DISCOVERY_TIMEOUT 60)
    return()
  endif()
  math(EXPR last "${arg_PROCESSES} - 1")
  foreach(i RANGE ${last})
    add_test(NAME ${name}.${i} COMMAND ${name})
    set_tests_properties(${name}.${i} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${COPUS_LONG_TEST_S} COST 60
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${arg_PROCESSES};GTEST_SHARD_INDEX=${i}")
  endforeach()
endfunction()

# copus_library and copus_test for folders that use libtorch. These share one precompiled header, that of copus_device.
function(copus_torch_library name)
  copus_library(${name} ${ARGN})
  target_precompile_headers(copus_${name} REUSE_FROM copus_device)
endfunction()

function(copus_torch_test name)
  copus_test(${name} TORCH ${ARGN})
  if(TARGET ${name})
    target_precompile_headers(${name} REUSE_FROM copus_device)
  endif()
endfunction()
