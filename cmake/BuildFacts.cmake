# Generates the source files behind `copus --version` in the build folder; apps/copus/build_facts.h declares their functions. The
# versions of libraries are known at configuration. Every build looks up the commit, and rewrites its file only if it changed.

# Sets `out` to the number behind a macro of a header, or to an empty text.
function(copus_macro_value out header name)
  file(STRINGS "${header}" lines REGEX "#[ \t]*define[ \t]+${name}[ \t]+[0-9]+")
  string(REGEX REPLACE ".*${name}[ \t]+([0-9]+).*" "\\1" value "${lines}")
  set(${out} "${value}" PARENT_SCOPE)
endfunction()

# Sets `out` to the version in a header's three macros, for example "1.2.3".
function(copus_header_version out header prefix)
  copus_macro_value(major "${header}" ${prefix}MAJOR)
  copus_macro_value(minor "${header}" ${prefix}MINOR)
  copus_macro_value(patch "${header}" ${prefix}PATCH)
  set(${out} "${major}.${minor}.${patch}" PARENT_SCOPE)
endfunction()

# Sets `out` to SentencePiece's version. Its headers have none, so the version comes from its pkg-config file.
function(copus_sentencepiece_version out)
  set(${out} "of unknown version" PARENT_SCOPE)
  cmake_path(GET COPUS_SENTENCEPIECE_LIBRARY PARENT_PATH folder)
  if(EXISTS "${folder}/pkgconfig/sentencepiece.pc")
    file(STRINGS "${folder}/pkgconfig/sentencepiece.pc" version REGEX "^Version:")
    string(REGEX REPLACE "^Version:[ \t]*" "" version "${version}")
    set(${out} "${version}" PARENT_SCOPE)
  endif()
endfunction()

# copus_build_facts(out_variable): lists the generated sources. A target that compiles them must depend on copus_commit.
function(copus_build_facts out)
  set(libtorch "")
  set(cuda "")
  set(nccl "")
  set(gloo "")
  set(sentencepiece "")
  set(ceres "")
  if(COPUS_WITH_TORCH)
    set(libtorch "${Torch_VERSION}")
    if(TARGET torch_cuda)
      set(cuda "${CUDA_VERSION}")
    endif()
    if(COPUS_WITH_NCCL)
      copus_header_version(nccl "${COPUS_NCCL_HEADERS}/nccl.h" NCCL_)
    endif()
    if(COPUS_GLOO_HEADERS)
      copus_header_version(gloo "${COPUS_GLOO_HEADERS}/gloo/config.h" GLOO_VERSION_)
    endif()
  endif()
  if(COPUS_WITH_SENTENCEPIECE)
    copus_sentencepiece_version(sentencepiece)
  endif()
  if(Ceres_FOUND)
    set(ceres "${Ceres_VERSION}")
  endif()
  set(facts "${PROJECT_BINARY_DIR}/generated/build_facts.cc")
  set(commit "${PROJECT_BINARY_DIR}/generated/commit.cc")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/build_facts.cc.in" "${facts}" @ONLY)
  find_package(Git QUIET)
  add_custom_target(copus_commit
    COMMAND "${CMAKE_COMMAND}" -DSOURCE=${PROJECT_SOURCE_DIR} -DGIT=${GIT_EXECUTABLE} -DOUT=${commit}
            -P "${PROJECT_SOURCE_DIR}/cmake/WriteCommit.cmake"
    BYPRODUCTS "${commit}"
    COMMENT "Looking up the commit"
    VERBATIM)
  set_source_files_properties("${facts}" "${commit}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${out} "${facts}" "${commit}" PARENT_SCOPE)
endfunction()
