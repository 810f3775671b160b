# cmake -P: which architectures a toolkit is asked for. nvcc is a script that knows those it is given.
cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/../../kernels/cuda/archs.cmake)
string(RANDOM LENGTH 12 name)
set(nvcc /tmp/quire-nvcc-${name})

function(expect archs knows want_known want_unknown)
    file(WRITE ${nvcc} "#!/bin/sh\nfor a in ${knows}; do\n"
        "    case \" $* \" in *\" -gencode=arch=compute_$a,code=sm_$a \"*) exit 0 ;; esac\ndone\n"
        "echo 'nvcc fatal   : Unsupported gpu architecture' >&2\nexit 1\n")
    file(CHMOD ${nvcc} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    cuda_known_archs("${archs}" ${nvcc} known unknown)
    file(REMOVE ${nvcc})
    if(NOT known STREQUAL want_known OR NOT unknown STREQUAL want_unknown)
        message(FATAL_ERROR "${archs} of '${knows}': '${known}' and '${unknown}', not '${want_known}' and '${want_unknown}'")
    endif()
endfunction()

expect("80;89;90a;100" "75 80 89 90 90a 100 100a" "80;89;90a;100" "") # 12.8 and later
expect("80;89;90a;100" "75 80 86 89 90 90a" "80;89;90a" "100") # older
expect("80;89;90a;100" "80 89 90" "80;89" "90a;100") # sm_90 alone
expect("100" "80 1000" "" "100") # a number that begins alike
