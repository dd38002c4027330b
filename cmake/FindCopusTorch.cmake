# Looks for libtorch 1.13 or later: Debian's libtorch-dev, a pip wheel's, or an unpacked libtorch. Sets COPUS_WITH_TORCH,
# COPUS_WITH_NCCL and COPUS_GLOO_HEADERS, and makes the target copus_torch, which includes Torch without its warnings.
set(COPUS_TORCH ON CACHE STRING "ON: build the training engine if libtorch is found; OFF: never; any other value says where \
libtorch is: a folder (site-packages/torch), or a Python that can import torch")
set(COPUS_WITH_TORCH OFF)
set(COPUS_WITH_NCCL OFF)

# Sets `out` to the folder of TorchConfig.cmake that COPUS_TORCH names, and ends the configuration if there is none.
function(copus_named_torch out)
  set(place "${COPUS_TORCH}")
  if(NOT IS_DIRECTORY "${place}")
    execute_process(COMMAND "${COPUS_TORCH}" -c "import torch.utils; print(torch.utils.cmake_prefix_path)"
                    RESULT_VARIABLE failed OUTPUT_VARIABLE place ERROR_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed EQUAL 0)
      string(REGEX REPLACE ".*\n" "" said "\n${said}")
      message(FATAL_ERROR "COPUS_TORCH: got ${COPUS_TORCH}; want a folder with libtorch, such as site-packages/torch,\n"
              "  or a Python that can import torch (${failed} ${said})")
    endif()
  endif()
  foreach(below share/cmake/Torch Torch torch/share/cmake/Torch lib/${CMAKE_LIBRARY_ARCHITECTURE}/cmake/Torch lib/cmake/Torch .)
    if(EXISTS "${place}/${below}/TorchConfig.cmake")
      cmake_path(SET folder NORMALIZE "${place}/${below}")
      set(${out} "${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "COPUS_TORCH: got ${COPUS_TORCH}; want libtorch with its headers, but ${place} has no\n"
          "  share/cmake/Torch/TorchConfig.cmake (Debian's python3-torch has none; install libtorch-dev and omit COPUS_TORCH)")
endfunction()

# Forgets what an earlier configuration found with another COPUS_TORCH.
if(NOT "${COPUS_TORCH}" STREQUAL "${COPUS_TORCH_BEFORE}")
  get_directory_property(names CACHE_VARIABLES)
  foreach(name IN LISTS names)
    if(name MATCHES "^(Torch|Caffe2)_DIR$|^(TORCH|C10|c10|CAFFE2|CUDA|torch_cuda|torch_cpu|kineto)_|^COPUS_(GLOO|NCCL)_HEADERS$"
       AND NOT COPUS_TORCH_BEFORE STREQUAL "")
      unset(${name} CACHE)
    endif()
  endforeach()
  set(COPUS_TORCH_BEFORE "${COPUS_TORCH}" CACHE INTERNAL "COPUS_TORCH when libtorch was last looked for")
endif()
if(COPUS_TORCH MATCHES "^(OFF|NO|FALSE|0|Off|No|False|off|no|false|)$")
  set(COPUS_TORCH OFF)
  return()
endif()
if(COPUS_TORCH MATCHES "^(ON|YES|TRUE|1|On|Yes|True|on|yes|true)$")
  find_package(Torch QUIET)
  if(NOT Torch_FOUND)
    return()
  endif()
else()
  copus_named_torch(copus_torch_folder)
  # TorchConfig.cmake looks for its parts in all prefixes. This libtorch must come before the system's.
  set(copus_prefixes "${CMAKE_PREFIX_PATH}")
  list(PREPEND CMAKE_PREFIX_PATH "${copus_torch_folder}/../../..")
  find_package(Torch REQUIRED PATHS "${copus_torch_folder}" NO_DEFAULT_PATH)
  set(CMAKE_PREFIX_PATH "${copus_prefixes}")
  message(STATUS "libtorch: ${copus_torch_folder}")
endif()
if(Torch_VERSION AND Torch_VERSION VERSION_LESS 1.13)
  # CMake does not break a line that begins with a space.
  message(FATAL_ERROR "  libtorch: got ${Torch_VERSION} in ${Torch_DIR}; want 1.13 or later, or -DCOPUS_TORCH=OFF")
endif()
if(TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
  message(FATAL_ERROR "libtorch: ${TORCH_INSTALL_PREFIX} has the C++ ABI from before GCC 5 (_GLIBCXX_USE_CXX11_ABI=0);\n"
          "  want a wheel of PyTorch 2.7 or later, or -DCOPUS_TORCH=OFF for a build without copus train")
endif()
set(COPUS_WITH_TORCH ON)
# Gloo's headers must be those that this libtorch was built with: the libtorch's own, or the system's for the system's libtorch.
set(gloo_only "")
if(NOT TORCH_INSTALL_PREFIX STREQUAL "/usr" AND NOT TORCH_INSTALL_PREFIX MATCHES "^/usr/lib")
  set(gloo_only NO_DEFAULT_PATH)
endif()
find_path(COPUS_GLOO_HEADERS gloo/config.h HINTS ${TORCH_INCLUDE_DIRS} ${gloo_only})
# NCCL's header comes with the wheel or with the system; its symbols are in libtorch_cuda.
if(TARGET torch_cuda)
  file(GLOB nccl_hints "${TORCH_INSTALL_PREFIX}/../nvidia/*/include")
  find_path(COPUS_NCCL_HEADERS nccl.h HINTS ${nccl_hints} ${CUDA_INCLUDE_DIRS})
  if(COPUS_NCCL_HEADERS)
    set(COPUS_WITH_NCCL ON)
  endif()
endif()
# Copus's own kernels need nvcc, as do PyTorch's CMake files. By default they are built for Ampere and Hopper;
# later GPUs compile Hopper's PTX.
set(COPUS_WITH_CUDA_KERNELS OFF)
if(TARGET torch_cuda)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(COPUS_WITH_CUDA_KERNELS ON)
  endif()
endif()
add_library(copus_torch INTERFACE)
target_include_directories(copus_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(copus_torch INTERFACE ${TORCH_LIBRARIES})
# A wheel brings its own fmt headers, of another version than the library that Copus links. Header-only, either version works,
# but each file takes seconds longer to compile.
get_target_property(fmt_headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(COPUS_TORCH_FMT fmt/format.h PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH NO_CACHE)
if(COPUS_TORCH_FMT AND NOT COPUS_TORCH_FMT IN_LIST fmt_headers)
  target_compile_definitions(copus_torch INTERFACE FMT_HEADER_ONLY=1)
endif()
# g++ 13 warns by mistake that ATen reads small vectors past their end.
target_compile_options(copus_torch INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
# at::parallel_for is inlined into Copus's code, so it uses threads only if Copus is compiled with OpenMP. OpenMP stays off with
# a CUDA wheel, which has its own OpenMP and works on the GPU, and under ThreadSanitizer, which does not understand its barriers.
if(NOT TARGET torch_cuda AND NOT CMAKE_CXX_FLAGS MATCHES "fsanitize=thread")
  find_package(OpenMP COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(copus_torch INTERFACE OpenMP::OpenMP_CXX)
  endif()
endif()
