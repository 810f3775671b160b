# Parts `archs` (such as 80;90a) into those that nvcc compiles for and the others. nvcc is asked about each, with nothing to
# compile: `--list-gpu-code` leaves the letters out, and a toolkit that has sm_90 need not have sm_90a.
function(cuda_known_archs archs nvcc known unknown)
    set(yes)
    set(no)
    foreach(arch ${archs})
        execute_process(COMMAND ${nvcc} --dryrun -gencode=arch=compute_${arch},code=sm_${arch} -x cu -c /dev/null -o /dev/null
            RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
        if(failed)
            list(APPEND no ${arch})
        else()
            list(APPEND yes ${arch})
        endif()
    endforeach()
    set(${known} "${yes}" PARENT_SCOPE)
    set(${unknown} "${no}" PARENT_SCOPE)
endfunction()
