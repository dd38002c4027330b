# Writes the commit of SOURCE to the source file OUT: twelve digits, with "+changes" if tracked files differ from the commit;
# "unknown" if SOURCE is not a clone. Leaves the file as it is if the text is the same, so that nothing is built again.
set(commit "unknown")
if(GIT AND EXISTS "${SOURCE}/.git")  # a folder inside another repository is not at that repository's commit
  # With safe.directory, git also answers root, who installs what another user built.
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
