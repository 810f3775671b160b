// CRC-32C, the checksum of RFC 3720, appendix B.4 (polynomial 0x1EDC6F41, reflected). Pure; any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Of n bytes behind those that `crc` is of; 0: of none.
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

// The same by tables, as it is where the processor has no instruction for it (tests).
uint32_t crc32c_tables(uint32_t crc, const void *data, size_t n);

#ifdef __cplusplus
}
#endif
