# cmake -DROOT=… -DOUT=identity.c -DFILES=… -P identity.cmake: a number for the sources that decide results (include/identity.h).
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
string(SHA256 identity "${all}")
string(SUBSTRING ${identity} 0 16 identity)
file(WRITE ${OUT} "#include \"identity.h\"\n\nconst char source_identity[] = \"${identity}\";\n")
