// What is still there after the power went. The rule, for everything that is written: first the
// data, then the folder that holds its name, and only then whatever points at that name. A file or
// folder that one of these functions, or make_folders() (io/folder.h), has returned for survives;
// docs/durability.md says what follows.
#pragma once

#include <string>

namespace qkscope {

// Waits until the file's data are on the disk.
void sync_file(const std::string& path);
// Waits until the names in the folder are on the disk: what was made, renamed or removed there.
void sync_folder(const std::string& path);

// Gives a file its name: its data, the new name and the folder that holds it, in this order.
void move_into_place(const std::string& from, const std::string& to);

}  // namespace qkscope
