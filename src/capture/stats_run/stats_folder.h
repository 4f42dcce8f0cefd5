// The output folder of statistics. Parts and locks work as in a capture
// (capture/format/data_root.h).
#pragma once

#include <functional>
#include <string>

#include "capture/format/data_root.h"
#include "capture/format/examples.h"
#include "qkscope/statistics.h"

namespace qkscope {

extern const RunKind kStatisticsRun;

class StatsFolder : public DataRoot {
 public:
  explicit StatsFolder(const std::string& path) : DataRoot(path, kStatisticsRun) {}
};

// Throws bad input when the folder holds a finished capture.
void refuse_capture(const std::string& folder);

// Writes all files of finished statistics to root.final_folder(). `add_examples` appends the
// examples in dataset order.
void write_final_statistics(const DataRoot& root, const Statistics& statistics,
                            DocumentSource& documents,
                            const std::function<void(ExamplesWriter&)>& add_examples);

}  // namespace qkscope
