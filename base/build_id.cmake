# cmake -DROOT=… -DOUT=build_id.c -DVERSION=… -DFILES=… -P build_id.cmake: the version, and a number for the sources that decide results (base/build_id.h).
# Of their names below ROOT and their contents, so that it is the same wherever and with whatever they are compiled: what
# `sha256sum FILES | sha256sum | cut -c 1-16` gives for the sorted names.
cmake_policy(VERSION 3.22)
separate_arguments(FILES UNIX_COMMAND "${FILES}")
list(SORT FILES COMPARE STRING)
set(all "")
foreach(file ${FILES})
    file(SHA256 ${ROOT}/${file} hash)
    string(APPEND all "${hash}  ${file}\n")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(WRITE ${OUT} "#include \"build_id.h\"\n\nconst char build_version[] = \"${VERSION}\";\nconst char build_id[] = \"${id}\";\n")
