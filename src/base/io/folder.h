// Queries and creation of folders that throw no std::filesystem exceptions.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

// Both return false on errors as well, such as a name that is too long or missing permissions.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);

// Throws bad input if the path is a folder, pipe or device. A missing path passes: the later open
// reports it.
void check_regular_file(const std::string& path);

// Returns the sorted names of all entries, without "." and "..".
std::vector<std::string> names_in(const std::string& folder);

// Returns the parent of a path; "." for a bare name.
std::string parent_folder(const std::string& path);

// Creates a folder and its missing parents durably (fsync). Returns the outermost folder created;
// "" if the folder existed.
std::string make_folders(const std::string& path);

}  // namespace qkscope
