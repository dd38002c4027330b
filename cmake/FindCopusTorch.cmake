# Looks for libtorch 1.13 or later, Debian's libtorch-dev or a pip wheel's (-DCMAKE_PREFIX_PATH=…). Sets
# COPUS_WITH_TORCH and COPUS_WITH_NCCL, and makes the target copus_torch: Torch without its warnings.
option(COPUS_TORCH "build the training engine where libtorch is found" ON)
set(COPUS_WITH_TORCH OFF)
set(COPUS_WITH_NCCL OFF)
if(NOT COPUS_TORCH)
  return()
endif()
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(STATUS "libtorch not found: building without the training engine")
  return()
endif()
set(COPUS_WITH_TORCH ON)
# NCCL's header comes with the wheel or with the system; its symbols are in libtorch_cuda.
if(TARGET torch_cuda)
  file(GLOB nccl_hints "${TORCH_INSTALL_PREFIX}/../nvidia/*/include")
  find_path(COPUS_NCCL_HEADERS nccl.h HINTS ${nccl_hints} ${CUDA_INCLUDE_DIRS})
  if(COPUS_NCCL_HEADERS)
    set(COPUS_WITH_NCCL ON)
  endif()
endif()
add_library(copus_torch INTERFACE)
target_include_directories(copus_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(copus_torch INTERFACE ${TORCH_LIBRARIES})
# A wheel brings its own fmt headers, of another version than the library that we link: header-only, either
# is right, but each file takes seconds more to compile.
get_target_property(fmt_headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(COPUS_TORCH_FMT fmt/format.h PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH NO_CACHE)
if(COPUS_TORCH_FMT AND NOT COPUS_TORCH_FMT IN_LIST fmt_headers)
  target_compile_definitions(copus_torch INTERFACE FMT_HEADER_ONLY=1)
endif()
# g++ 13 takes ATen's small vectors for arrays that are read past their end.
target_compile_options(copus_torch INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
# at::parallel_for is inlined into our code: it uses threads only where OpenMP is on. A wheel with CUDA carries an
# OpenMP of its own, and its work is on the GPU; ThreadSanitizer does not understand OpenMP's barriers.
if(NOT TARGET torch_cuda AND NOT CMAKE_CXX_FLAGS MATCHES "fsanitize=thread")
  find_package(OpenMP COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(copus_torch INTERFACE OpenMP::OpenMP_CXX)
  endif()
endif()
