// Looking at folders, and making them, without exceptions of the standard library.
#pragma once

#include <string>
#include <vector>

namespace qkscope {

// False also where the system cannot tell (a name too long, no permission on the way).
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);

// Refuses a path that is no file to be read: a folder, a pipe that would be waited for. One that is
// not there passes; opening it says so.
void check_regular_file(const std::string& path);

// Names of everything in the folder, sorted, without "." and "..".
std::vector<std::string> names_in(const std::string& folder);

// The folder that holds a file or folder; "." for a bare name.
std::string parent_folder(const std::string& path);

// With those on the way; nothing happens where it is there. They survive a loss of power. Returns
// the outermost folder that was made, "" where all were there.
std::string make_folders(const std::string& path);

}  // namespace qkscope
