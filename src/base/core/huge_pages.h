#pragma once

namespace qkscope {

// Asks the system for huge pages, whose addresses are found sooner, where large blocks of the
// calling thread will lie. Only where the program keeps what it frees (mallopt) do later blocks lie
// there; elsewhere, or where the system has no such pages, nothing changes.
void ask_for_huge_pages();

}  // namespace qkscope
