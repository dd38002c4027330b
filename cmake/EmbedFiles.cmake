# embed_files(out_variable folder name): generates one source file with every .json file under `folder`. It defines
#   std::span<const copus::EmbeddedFile> copus::<name>();
# which copus/spec/embedded_file.h declares. If a .json file changes or is new, the build generates it again.
function(embed_files out folder name)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE "${folder}" "${folder}/*.json")
  list(SORT files)
  set(body "#include \"copus/spec/embedded_file.h\"\n\nnamespace copus {\nnamespace {\n")
  string(APPEND body "constexpr EmbeddedFile kFiles[] = {\n")
  foreach(file IN LISTS files)
    file(READ "${folder}/${file}" content)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}/${file}")
    string(APPEND body "    {\"${file}\", R\"__json__(${content})__json__\"},\n")
  endforeach()
  string(APPEND body "};\n}  // namespace\n\nstd::span<const EmbeddedFile> ${name}() { return kFiles; }\n\n}  // namespace copus\n")
  set(generated "${PROJECT_BINARY_DIR}/generated/${name}.cc")
  file(GENERATE OUTPUT "${generated}" CONTENT "${body}")
  set_source_files_properties("${generated}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${out} "${generated}" PARENT_SCOPE)
endfunction()
