# Says what `make install` and `make package` put where. Programs that only copus starts, and libraries that it loads, go to
# lib/copus. There are two components, each a Debian package: copus plans; copus-train is the engine, whose libtorch takes a
# gigabyte.
include(GNUInstallDirs)

install(TARGETS copus RUNTIME DESTINATION bin COMPONENT copus)
if(TARGET copus_sentencepiece)
  install(TARGETS copus_sentencepiece LIBRARY DESTINATION lib/copus COMPONENT copus)
endif()
if(COPUS_WITH_TORCH)
  install(TARGETS copus-train RUNTIME DESTINATION lib/copus COMPONENT copus-train)
endif()

# Manual pages and completions, as the program prints them.
set(pages "${PROJECT_BINARY_DIR}/generated/man1")
set(completions "${PROJECT_BINARY_DIR}/generated/completions")
find_program(COPUS_GZIP gzip)
set(pack "")
if(COPUS_GZIP)
  set(pack COMMAND "${COPUS_GZIP}" -9 -n -r "${pages}")
endif()
add_custom_command(OUTPUT "${pages}.done"
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${pages}" "${completions}"
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${pages}" "${completions}"
  COMMAND copus man --into "${pages}"
  ${pack}
  COMMAND copus completion bash > "${completions}/copus"
  COMMAND copus completion zsh > "${completions}/_copus"
  COMMAND copus completion fish > "${completions}/copus.fish"
  COMMAND "${CMAKE_COMMAND}" -E touch "${pages}.done"
  DEPENDS copus
  COMMENT "Writing the manual pages and completions"
  VERBATIM)
add_custom_target(copus_pages ALL DEPENDS "${pages}.done")
install(DIRECTORY "${pages}/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT copus)
install(FILES "${completions}/copus" DESTINATION share/bash-completion/completions COMPONENT copus)
install(FILES "${completions}/copus.fish" DESTINATION share/fish/vendor_completions.d COMPONENT copus)
# Debian's zsh looks for completions in /usr/local/share/zsh/site-functions and in /usr/share/zsh/vendor-completions.
install(CODE "
  set(folder site-functions)
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\" AND EXISTS /etc/debian_version)
    set(folder vendor-completions)
  endif()
  file(INSTALL \"${completions}/_copus\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/share/zsh/\${folder}\")"
  COMPONENT copus)

install(FILES LICENSE README.md CONTRIBUTING.md DESTINATION share/doc/copus COMPONENT copus)
install(FILES LICENSE DESTINATION share/doc/copus RENAME copyright COMPONENT copus)
install(FILES LICENSE DESTINATION share/doc/copus-train RENAME copyright COMPONENT copus-train)
install(DIRECTORY catalog docs examples DESTINATION share/doc/copus COMPONENT copus)

set(CPACK_PACKAGE_NAME copus)
set(CPACK_PACKAGE_VENDOR "the Copus authors")
set(CPACK_PACKAGE_CONTACT "the Copus authors <copus@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plan and run the training of large language models")
set(CPACK_PACKAGE_FILE_NAME "copus-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR TGZ)
# A .deb must say which packages it needs. dpkg-shlibdeps finds them for libraries from packages, but not for a wheel's.
find_program(COPUS_SHLIBDEPS dpkg-shlibdeps)
if(COPUS_SHLIBDEPS AND (NOT COPUS_WITH_TORCH OR TORCH_INSTALL_PREFIX MATCHES "^/usr(/lib.*)?$"))
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COPUS_PACKAGE_NAME copus)
set(CPACK_DEBIAN_COPUS_PACKAGE_SUGGESTS "copus-train (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_COPUS-TRAIN_PACKAGE_NAME copus-train)
set(CPACK_DEBIAN_COPUS-TRAIN_PACKAGE_DEPENDS "copus (= ${PROJECT_VERSION})")
set(CPACK_COMPONENTS_ALL copus)
if(COPUS_WITH_TORCH)
  list(APPEND CPACK_COMPONENTS_ALL copus-train)
endif()
set(CPACK_COMPONENT_COPUS_DESCRIPTION "plans the training of large language models: layout, time, memory, traffic")
set(CPACK_COMPONENT_COPUS-TRAIN_DESCRIPTION "trains large language models: the engine behind copus train")
include(CPack)
