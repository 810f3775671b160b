# For packaging/portable.sh, which lays the sysroot and names the architecture in the environment.
set(CMAKE_SYSTEM_PROCESSOR $ENV{QUIRE_PORTABLE_ARCH})
set(CMAKE_C_COMPILER ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-gcc)
get_filename_component(source ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
set(CMAKE_CXX_COMPILER NOTFOUND) # the emulator of CUDA kernels is for tests
set(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/portable-${CMAKE_SYSTEM_PROCESSOR}/root)
set(CMAKE_LIBRARY_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig)
set(CMAKE_C_FLAGS_INIT "-ffile-prefix-map=${source}=.") # the same bytes from any folder
if(NOT CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL CMAKE_SYSTEM_PROCESSOR)
    set(CMAKE_SYSTEM_NAME Linux)
    set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${CMAKE_SYSTEM_PROCESSOR} -L ${CMAKE_SYSROOT}) # the program prints its manual
    # before the headers that Debian's cross compilers bring
    string(APPEND CMAKE_C_FLAGS_INIT " -isystem ${CMAKE_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -isystem ${CMAKE_SYSROOT}/usr/include")
endif()
# -B: before the folder of the compiler's own machine, which a compiler for that very machine searches whatever its sysroot
set(CMAKE_EXE_LINKER_FLAGS_INIT "-B${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} -static-libgcc -Wl,--as-needed,--wrap=exp,--wrap=log,--wrap=pow")
set(CMAKE_C_STANDARD_LIBRARIES_INIT "-lolder_math -lpthread -ldl -lrt -lm") # what the archives want, which come before
