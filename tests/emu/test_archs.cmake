# cmake -P: which architectures a toolkit is asked for.
cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/../../kernels/cuda/archs.cmake)

function(expect archs codes want_known want_unknown)
    cuda_known_archs("${archs}" "${codes}" known unknown)
    if(NOT known STREQUAL want_known OR NOT unknown STREQUAL want_unknown)
        message(FATAL_ERROR "${archs} of '${codes}': '${known}' and '${unknown}', not '${want_known}' and '${want_unknown}'")
    endif()
endfunction()

expect("80;89;90a;100" "sm_80\nsm_89\nsm_90\nsm_100\nsm_103\n" "80;89;90a;100" "") # 12.8 and later
expect("80;89;90a;100" "sm_75\nsm_80\nsm_86\nsm_89\nsm_90\nsm_90a" "80;89;90a" "100") # older, as some list letters
expect("100" "sm_80\nsm_1000\n" "" "100") # a number that begins alike
expect("80;100" "" "80;100" "") # it does not say
