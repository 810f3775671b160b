# gpu_tests(program LIBRARIES … OBJECTS …): all tests of the CUDA backend that a device runs, and its benchmark, as one
# program (gpu_tests.c): each would bring the same kernels. Objects: of emu/test_emu_intrinsics.cu, built with
# -Dmain=test_intrinsics_main, and bench/stream.cu. They look for data where they are started.
function(gpu_tests program)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OBJECTS;LIBRARIES")
    set(tests ${PROJECT_SOURCE_DIR}/tests)
    set(parts)
    foreach(name rows gemm experts attention sample forward lora steps peers processes model real_shapes bench)
        set(sources ${tests}/emu/test_emu_${name}.c)
        if(name STREQUAL "bench")
            file(GLOB sources ${tests}/bench/bench_cuda*.c)
        endif()
        set(part ${program}_${name})
        add_library(${part} OBJECT EXCLUDE_FROM_ALL ${sources})
        target_include_directories(${part} PRIVATE ${tests} ${tests}/ops ${tests}/bench ${PROJECT_SOURCE_DIR}/kernels
            ${PROJECT_SOURCE_DIR}/kernels/cuda ${PROJECT_SOURCE_DIR}/kernels/ref ${PROJECT_SOURCE_DIR}/kernels/cpu
            ${PROJECT_SOURCE_DIR}/engine)
        target_compile_definitions(${part} PRIVATE main=test_${name}_main QUIRE_SOURCE_DIR="." QUIRE_BINARY_DIR=".")
        target_link_libraries(${part} PRIVATE ${arg_LIBRARIES} sched engine kernels base)
        list(APPEND parts $<TARGET_OBJECTS:${part}>)
    endforeach()
    add_executable(${program} EXCLUDE_FROM_ALL ${tests}/gpu_tests.c ${parts} ${arg_OBJECTS})
    target_link_libraries(${program} PRIVATE ${arg_LIBRARIES} sched engine kernels base Threads::Threads m)
endfunction()
