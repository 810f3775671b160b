# Packages of the same sources have the same bytes: their times are that of changelog.in, unless the environment has one.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
    set(ENV{SOURCE_DATE_EPOCH} 1795824000)
endif()
