# Makes every build check that a target includes only headers of its own folder and of the targets that it depends on. CMake
# cannot check this, because the compiler finds every header in the tree. cmake/check_layers.py has the rules.

# Lists Copus's targets under `folder`, one line each: name, kind, folder, sources, dependencies.
function(copus_collect_targets out folder)
  set(lines "")
  cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
  string(APPEND lines "folder\t${name}\n")
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(kind ${target} TYPE)
    if(NOT kind MATCHES "LIBRARY|EXECUTABLE" OR kind STREQUAL INTERFACE_LIBRARY)
      continue()
    endif()
    get_target_property(sources ${target} SOURCES)
    get_target_property(deps ${target} LINK_LIBRARIES)
    list(FILTER deps INCLUDE REGEX "^copus_")
    string(APPEND lines "target\t${target}\t${kind}\t${name}\t${sources}\t${deps}\n")
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    copus_collect_targets(inner_lines "${inner}")
    string(APPEND lines "${inner_lines}")
  endforeach()
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

# Adds the check. Call it when all targets exist. A build without tests does not know what the tests may include, so it is not
# checked.
function(copus_check_layers)
  if(NOT BUILD_TESTING OR COPUS_FUZZ)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  copus_collect_targets(lines "${PROJECT_SOURCE_DIR}")
  set(targets "${PROJECT_BINARY_DIR}/layers.txt")
  set(done "${PROJECT_BINARY_DIR}/layers.ok")
  file(GENERATE OUTPUT "${targets}" CONTENT "${lines}")
  # The check runs again if a file that it read has changed, or if a folder has a new file.
  add_custom_command(OUTPUT "${done}"
    COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/cmake/check_layers.py" --source "${PROJECT_SOURCE_DIR}" --targets "${targets}"
            --done "${done}"
    DEPENDS "${targets}" "${PROJECT_SOURCE_DIR}/cmake/check_layers.py"
    DEPFILE "${done}.d"
    COMMENT "Checking that includes follow the dependencies"
    VERBATIM)
  add_custom_target(layers ALL DEPENDS "${done}")
endfunction()
