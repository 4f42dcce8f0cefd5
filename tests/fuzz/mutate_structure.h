// Mutations that keep the syntax of a format, so that they reach the code that interprets the
// values: JSON, the Thrift structures of Parquet files, and the opcodes of pickles.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qkscope {

// Mutates the input in the format that its first and last bytes show. Input that cannot be parsed
// is returned unchanged. The result depends only on input and seed.
std::string mutate_structure(std::string_view input, std::uint64_t seed);

// Mutates a value of the footer or of a page header of a Parquet file, or a byte of a page. Lengths
// and checksums are corrected, so that only the mutated value is wrong.
std::string mutate_parquet(std::string_view file, std::uint64_t seed);

// Mutates opcodes and arguments of a pickle, or of the pickle in a zip file of PyTorch.
std::string mutate_pickle(std::string_view file, std::uint64_t seed);

// CRC-32 of zip files and of Parquet pages.
std::uint32_t crc32(std::string_view bytes);

// Returns a number at which readers tend to fail, or a neighbour of `value`.
std::int64_t awkward_integer(std::int64_t value, std::uint64_t random);

}  // namespace qkscope
