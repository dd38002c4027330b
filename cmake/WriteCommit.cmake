# Writes the source file with the commit that SOURCE is at, as OUT: twelve digits, "+changes" where tracked files differ from
# it, "unknown" where SOURCE is no clone. The file is left alone while that stays the same, so that nothing is built again.
set(commit "unknown")
if(GIT AND EXISTS "${SOURCE}/.git")  # a folder in somebody else's repository is not at that one's commit
  # Root, who installs what another built, is told too.
  set(git "${GIT}" -c "safe.directory=${SOURCE}" -C "${SOURCE}")
  execute_process(COMMAND ${git} rev-parse --short=12 HEAD RESULT_VARIABLE failed OUTPUT_VARIABLE hash ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${git} --no-optional-locks status --porcelain --untracked-files=no
                  RESULT_VARIABLE status_failed OUTPUT_VARIABLE changes ERROR_QUIET)
  if(failed EQUAL 0 AND status_failed EQUAL 0)
    set(commit "${hash}")
    if(changes)
      string(APPEND commit "+changes")
    endif()
  endif()
endif()
set(text "#include \"apps/copus/build_facts.h\"\n\nstd::string_view copus::build_commit() { return \"${commit}\"; }\n")
set(before "")
if(EXISTS "${OUT}")
  file(READ "${OUT}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${OUT}" "${text}")
endif()
